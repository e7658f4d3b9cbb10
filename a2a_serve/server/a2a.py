"""A2A's operations (spec section 3) over tasks: our RequestHandler behind the SDK's dispatchers for every binding."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from a2a.auth.user import User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
)
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from a2a_serve.core.errors import ServeError
from a2a_serve.core.model import Identity
from a2a_serve.log import request_id
from a2a_serve.server import dispatch, surface
from a2a_serve.server.jsonrpc import JsonRpc, Stream
from a2a_serve.server.live import LiveTask, Subscriber
from a2a_serve.server.required import require_fields
from a2a_serve.server.tasks import Tasks

log = logging.getLogger(__name__)

JSONRPC_PATH, REST_PATH = "/a2a/jsonrpc", "/a2a/rest"
HEARTBEAT_SECONDS = 4
"""The stock Python client gives up after 5 seconds of silence."""
MAX_PAGE = 100


class Caller(User):
    """An admitted Identity in the SDK's terms."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self.identity.id


class CallerContext(ServerCallContextBuilder):
    """Takes the identity that the guard has put into the ASGI scope; a request without one never gets here."""

    def build(self, request: Request) -> ServerCallContext:
        return ServerCallContext(
            user=Caller(request.scope["state"]["identity"]),
            state={"headers": dict(request.headers)},
            requested_extensions=get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER)),
        )


def routes(handler: Handler, bindings: set[str]) -> list[BaseRoute]:
    """The HTTP routes of the bindings `jsonrpc` and `rest`, for v1.0 and v0.3 callers."""
    EventSourceResponse.DEFAULT_PING_INTERVAL = HEARTBEAT_SECONDS
    made: list[BaseRoute] = []
    context = CallerContext()
    if "jsonrpc" in bindings:
        other = dispatch.rpc_app(handler, context)
        serve = JsonRpc(handler, context, other, heartbeat=HEARTBEAT_SECONDS)
        made += [Route(path, serve, methods=["POST"]) for path in (JSONRPC_PATH, f"{JSONRPC_PATH}/")]
    if "rest" in bindings:
        made += dispatch.rest_routes(handler, context, REST_PATH)
    return made


@contextmanager
def _told_plainly() -> Iterator[None]:
    """A caller gets one sentence and an id to quote; what went wrong inside goes to the log only."""
    try:
        yield
    except A2AError:
        raise
    except ServeError as error:
        raise InternalError(error.sentence, {"code": error.code}) from error
    except Exception as error:
        log.exception("a request failed")
        told = {"requestId": request_id.get()}
        raise InternalError("The server failed to handle this request.", told) from error


class Handler(RequestHandler):
    """Every binding and both protocol versions end here."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task:
        with _told_plainly():
            require_fields(params)
            _check_configuration(params)
            accepted = await self._tasks.submit(_who(context), params.message)
            task, live = accepted.task, accepted.live
            if live is not None and not params.configuration.return_immediately:
                await live.settled()
                task = live.snapshot()
            return _trimmed(task, params.configuration)

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        first, rest = await self.begin_message_stream(params, context)
        async for event in _follow(first, rest):
            yield event

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        first, rest = await self.begin_subscription(params, context)
        async for event in _follow(first, rest):
            yield event

    async def begin_message_stream(self, params: pb.SendMessageRequest, context: ServerCallContext) -> Stream:
        with _told_plainly():
            require_fields(params)
            _check_configuration(params)
            accepted = await self._tasks.submit(_who(context), params.message)
            if accepted.live is None:
                return _trimmed(accepted.task, params.configuration), None
            return _open_stream(accepted.live, until_question=True)

    async def begin_subscription(self, params: pb.SubscribeToTaskRequest, context: ServerCallContext) -> Stream:
        with _told_plainly():
            require_fields(params)
            live = await self._tasks.follow(_who(context), params.id)
            return _open_stream(live, until_question=False)

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        with _told_plainly():
            require_fields(params)
            return _trimmed(await self._tasks.get(_who(context), params.id), params)

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        with _told_plainly():
            require_fields(params)
            size = params.page_size if params.HasField("page_size") else 50
            if not 1 <= size <= MAX_PAGE:
                raise InvalidParamsError(f"pageSize is from 1 to {MAX_PAGE}.")
            page = await self._tasks.list(
                _who(context),
                context_id=params.context_id,
                state=params.status,
                after=params.status_timestamp_after if params.HasField("status_timestamp_after") else None,
                page_size=size,
                page_token=params.page_token,
            )
            tasks = [_listed(task, params) for task in page.tasks]
            return pb.ListTasksResponse(
                tasks=tasks, next_page_token=page.next_token, page_size=size, total_size=page.total
            )

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        with _told_plainly():
            require_fields(params)
            return await self._tasks.cancel(_who(context), params.id)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        raise ExtendedAgentCardNotConfiguredError

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> NoReturn:
        raise PushNotificationNotSupportedError


def _open_stream(live: LiveTask, *, until_question: bool) -> Stream:
    """The whole task first, then what happens (spec 3.1.6); nothing is missed in between."""
    first = live.snapshot()
    if first.status.state in surface.TERMINAL or (until_question and first.status.state in surface.INTERRUPTED):
        return first, None
    return first, live.subscribe(until_question=until_question)


async def _follow(first: pb.Task, rest: Subscriber | None) -> AsyncIterator[Event]:
    try:
        yield first
        if rest is not None:
            async for event in rest.events():
                yield event
    finally:
        if rest is not None:
            rest.leave()


def _who(context: ServerCallContext) -> Identity:
    assert isinstance(context.user, Caller)
    return context.user.identity


def _check_configuration(params: pb.SendMessageRequest) -> None:
    """Before anything is done. Raises PushNotificationNotSupported, InvalidParams."""
    _check_history(params.configuration)
    if params.configuration.HasField("task_push_notification_config"):
        raise PushNotificationNotSupportedError


def _check_history(asked: Any) -> None:
    if asked.HasField("history_length") and asked.history_length < 0:
        raise InvalidParamsError("historyLength is 0 or more.")


def _trimmed(task: pb.Task, asked: Any) -> pb.Task:
    """The task with as much history as `asked.history_length` wants: all where unset, none at 0 (spec 3.2.4)."""
    _check_history(asked)
    if asked.HasField("history_length"):
        kept = list(task.history)[-asked.history_length :] if asked.history_length else []
        del task.history[:]
        task.history.extend(kept)
    return task


def _listed(task: pb.Task, asked: pb.ListTasksRequest) -> pb.Task:
    if not asked.include_artifacts:
        del task.artifacts[:]
    return _trimmed(task, asked)
