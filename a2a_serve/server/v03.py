"""Callers that still speak A2A 0.3: the SDK's adapters, with what they get wrong put right.

A call with bad parameters is -32602 and never carries a validator's own text; over REST a message needs its role, a
stream that cannot begin is an error and not a broken stream, and all of the push methods answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3 import conversions, proto_utils, types
from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
from a2a.compat.v0_3.request_handler import RequestHandler03
from a2a.compat.v0_3.rest_adapter import REST03Adapter
from a2a.compat.v0_3.rest_handler import REST03Handler
from a2a.server.context import ServerCallContext
from a2a.server.jsonrpc_models import InternalError as RpcInternalError
from a2a.server.jsonrpc_models import JSONRPCError
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.types import a2a_pb2 as core
from a2a.utils import json_utils
from a2a.utils.error_handlers import build_rest_error_payload, rest_error_handler, rest_stream_error_handler
from a2a.utils.errors import A2AError, InternalError, InvalidParamsError, PushNotificationNotSupportedError
from a2a.utils.version_validator import validate_version
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from pydantic import ValidationError
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

VERSION = "0.3"
UNTRANSLATABLE = (ValueError, ParseError)
"""What the SDK's translation to 1.0 raises for a message that has no counterpart there."""
PLAIN = "The server failed; its log has the cause."


class Translator(RequestHandler03):
    """Calls of 0.3 on our handler. What cannot be translated is the caller's fault, and said so."""

    async def on_message_send(self, request: types.SendMessageRequest, context: ServerCallContext) -> types.Task:
        task = await self.request_handler.on_message_send(_to_core(request), context)
        assert isinstance(task, core.Task)
        return conversions.to_compat_task(task)

    async def on_message_send_stream(
        self, request: types.SendMessageRequest, context: ServerCallContext
    ) -> AsyncIterator[types.SendStreamingMessageSuccessResponse]:
        _to_core(request)
        async for event in super().on_message_send_stream(request, context):
            yield event


def _to_core(request: types.SendMessageRequest) -> core.SendMessageRequest:
    """Raises InvalidParamsError: base64 that is none, numbers that do not fit."""
    try:
        return conversions.to_core_send_message_request(request)
    except (*UNTRANSLATABLE, KeyError, TypeError):
        raise InvalidParamsError("The message cannot be translated to A2A 1.0.") from None


class LegacyJsonRpc(JSONRPC03Adapter):
    """The JSON-RPC methods of 0.3, such as `message/send`."""

    def __init__(self, handler: RequestHandler, context: ServerCallContextBuilder) -> None:
        super().__init__(handler, context)
        self.handler = Translator(handler)

    async def handle_request(
        self, request_id: str | int | None, method: str, body: dict[str, Any], request: Request
    ) -> JSONResponse | EventSourceResponse:
        try:
            self.METHOD_TO_MODEL[method].model_validate(body)
        except ValidationError as error:
            return self._generate_error_response(request_id, _bad_params(error))
        return await super().handle_request(request_id, method, body, request)

    def _generate_error_response(self, request_id: str | int | None, error: Any) -> JSONResponse:
        error = error if is_told(error) else InternalError(PLAIN)
        return super()._generate_error_response(request_id, error)


def is_told(error: object) -> bool:
    """Whether an error has a sentence for callers; the SDK puts any other exception's own text into an internal one."""
    return isinstance(error, A2AError | JSONRPCError) and not isinstance(error, RpcInternalError)


def _bad_params(error: ValidationError) -> InvalidParamsError:
    """Names the first field at fault; the validator's sentences are not the caller's business."""
    where = ".".join(str(step) for step in error.errors(include_input=False, include_url=False)[0]["loc"])
    return InvalidParamsError(f"{where or 'params'} is missing or not valid.")


class _RestHandler(REST03Handler):
    def __init__(self, handler: RequestHandler) -> None:
        super().__init__(handler)
        self.handler03 = Translator(handler)

    @validate_version(VERSION)
    async def on_message_send(self, request: Request, context: ServerCallContext) -> dict[str, Any]:
        answer = await self.handler03.on_message_send(await _read_send(request), context)
        return MessageToDict(proto_utils.ToProto.task_or_message(answer))

    @validate_version(VERSION)
    async def on_message_send_stream(
        self, request: Request, context: ServerCallContext
    ) -> AsyncIterator[dict[str, Any]]:
        async for event in self.handler03.on_message_send_stream(await _read_send(request), context):
            yield MessageToDict(proto_utils.ToProto.stream_response(event.result))

    async def no_push(self, request: Request, context: ServerCallContext) -> None:
        raise PushNotificationNotSupportedError


async def _read_send(request: Request) -> types.SendMessageRequest:
    """Raises InvalidParamsError for a message without a role, ParseError for what is no message at all."""
    parsed = pb.SendMessageRequest()
    Parse(await request.body(), parsed, ignore_unknown_fields=True)
    if not parsed.request.role:
        raise InvalidParamsError("message.role must be ROLE_USER.")
    return types.SendMessageRequest(id="", params=proto_utils.FromProto.message_send_params(parsed))


class LegacyRest(REST03Adapter):
    """The REST paths of 0.3, `/v1/...`."""

    def __init__(self, handler: RequestHandler, context: ServerCallContextBuilder) -> None:
        super().__init__(handler, context)
        self.handler: _RestHandler = _RestHandler(handler)

    @rest_error_handler
    async def _handle_request(
        self, method: Callable[[Request, ServerCallContext], Awaitable[Any]], request: Request
    ) -> Response:
        return JSONResponse(await plainly(method(request, self._context_builder.build(request))))

    @rest_stream_error_handler
    async def _handle_streaming_request(
        self, method: Callable[[Request, ServerCallContext], AsyncIterator[Any]], request: Request
    ) -> Response:
        """An error before the first event is the answer itself."""
        events = aiter(method(request, self._context_builder.build(request)))
        first = await plainly(anext(events))

        async def stream() -> AsyncIterator[dict[str, str]]:
            yield {"data": json_utils.dumps(first)}
            try:
                async for event in events:
                    yield {"data": json_utils.dumps(event)}
            except A2AError as error:
                yield {"data": json_utils.dumps(build_rest_error_payload(error)), "event": "error"}

        return EventSourceResponse(stream())

    def routes(self) -> dict[tuple[str, str], Callable[[Request], Any]]:
        no_push = partial(self._handle_request, self.handler.no_push)
        found = {
            key: no_push if "/pushNotificationConfigs" in key[0] else each for key, each in super().routes().items()
        }
        return {**found, ("/v1/tasks/{id}/pushNotificationConfigs/{push_id}", "DELETE"): no_push}


async def plainly(answer: Awaitable[Any]) -> Any:
    """The answer, or an error in our words. Raises A2AError only."""
    try:
        return await answer
    except A2AError:
        raise
    except UNTRANSLATABLE:
        raise InvalidParamsError("The request does not have the shape of this method's.") from None


def rest_routes(handler: RequestHandler, context: ServerCallContextBuilder, prefix: str) -> list[Route]:
    """The routes of 0.3 under `prefix`; they go before those of 1.0."""
    made = LegacyRest(handler, context).routes()
    return [Route(prefix + path, endpoint, methods=[method]) for (path, method), endpoint in made.items()]
