"""The control socket's API: what the owner's own commands ask a running server. JSON over HTTP, by peer uid."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from a2a_serve.core.errors import (
    NotAllowed,
    OptionUnknown,
    QuestionClosed,
    QuestionUnknown,
    ServeError,
    UsageError,
)
from a2a_serve.core.model import Answer, Identity, Role
from a2a_serve.listeners import ASGIApp
from a2a_serve.server.questions import Questions, to_json

STATUS_OF: dict[type[ServeError], int] = {
    UsageError: 400,
    OptionUnknown: 400,
    NotAllowed: 403,
    QuestionUnknown: 404,
    QuestionClosed: 409,
}
PAIRED_ROLES = (Role.USER, Role.GUEST, Role.AGENT, Role.OWNER)


@dataclass(frozen=True, slots=True)
class Host:
    """What the composition root hands in: facts and acts that are not the server's own."""

    status: Callable[[], Awaitable[dict[str, Any]]]
    pair: Callable[[str, Role], Awaitable[str]]
    token_for: Callable[[str], str | None]
    stop: Callable[[], None]


class Control:
    """The application behind the control socket."""

    def __init__(self, questions: Questions, host: Host) -> None:
        self._questions, self._host = questions, host

    def app(self) -> ASGIApp:
        routes = [
            self._route("/status", self._status),
            self._route("/questions", self._list_questions),
            self._route("/questions/{id:path}/answer", self._answer, "POST"),
            self._route("/pairings", self._pair, "POST"),
            self._route("/token", self._token),
            self._route("/stop", self._stop, "POST"),
        ]
        return Starlette(routes=routes)

    def _route(self, path: str, act: Callable[[Request, Identity], Awaitable[Any]], method: str = "GET") -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                return JSONResponse(await act(request, _owner(request)))
            except ServeError as error:
                body = {"code": error.code, "sentence": error.sentence, "hint": error.hint}
                return JSONResponse({"error": body}, STATUS_OF.get(type(error), 500))

        return Route(path, endpoint, methods=[method])

    async def _status(self, request: Request, identity: Identity) -> Any:
        return await self._host.status()

    async def _list_questions(self, request: Request, identity: Identity) -> Any:
        return [to_json(question) for question in await self._questions.list_open()]

    async def _answer(self, request: Request, identity: Identity) -> Any:
        body = _body(request)
        answer = Answer(request.path_params["id"], _text(body, "option"), _text(body, "reason", ""))
        decided = await self._questions.answer(identity, answer)
        return {
            "id": decided.id,
            "state": decided.state,
            "option": decided.option_id,
            "by": decided.answered_by,
        }

    async def _pair(self, request: Request, identity: Identity) -> Any:
        body = _body(request)
        name, role = _text(body, "name"), _text(body, "role", Role.USER)
        if role not in PAIRED_ROLES:
            raise UsageError(f"There is no role {role!r}.", f"Choose one of {', '.join(PAIRED_ROLES)}.")
        token = await self._host.pair(name, Role(role))
        return {"name": name, "role": role, "token": token}

    async def _token(self, request: Request, identity: Identity) -> Any:
        token = self._host.token_for(request.query_params.get("origin", ""))
        if token is None:
            raise QuestionUnknown("This server does not serve that origin.")
        return {"token": token}

    async def _stop(self, request: Request, identity: Identity) -> Any:
        self._host.stop()
        return {"stopping": True}


def _owner(request: Request) -> Identity:
    """Whom the guard has let in; the socket's one method knows only owners, and this does not lean on it."""
    identity: Identity = request.scope["state"]["identity"]
    if not identity.is_owner:
        raise NotAllowed("Only the user who runs the server can use its control socket.")
    return identity


def _body(request: Request) -> dict[str, Any]:
    body = request.scope["state"]["json"]
    if not isinstance(body, dict):
        raise UsageError("The request's body is not a JSON object.")
    return body


def _text(body: dict[str, Any], key: str, default: str | None = None) -> str:
    value = body.get(key, default)
    if not isinstance(value, str):
        raise UsageError(f"{key!r} is missing or not text.")
    return value
