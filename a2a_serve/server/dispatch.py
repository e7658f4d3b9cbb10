"""The SDK's dispatchers of JSON-RPC and HTTP+JSON, both versions, with errors in our words: no exception's own text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.server.routes.rest_dispatcher import RestDispatcher
from a2a.utils.errors import A2AError, InternalError
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, request_response

from a2a_serve.listeners import ASGIApp
from a2a_serve.server import v03
from a2a_serve.server.v03 import PLAIN, is_told, plainly


class Dispatcher(JsonRpcDispatcher):
    """JSON-RPC for callers of both versions: a method's name tells which one is spoken."""

    def __init__(self, handler: RequestHandler, context: ServerCallContextBuilder) -> None:
        super().__init__(handler, context, enable_v0_3_compat=True)
        self._v03_adapter = v03.LegacyJsonRpc(handler, context)

    def _generate_error_response(self, request_id: str | int | None, error: Any) -> JSONResponse:
        if not is_told(error):
            error = InternalError(PLAIN)
        elif isinstance(error, A2AError) and error.data and "parseError" in error.data:
            error = type(error)("The request does not have the shape of this method's.")
        return super()._generate_error_response(request_id, error)


class Rest(RestDispatcher):
    """HTTP+JSON of 1.0."""

    async def _handle_non_streaming(
        self, request: Request, handler_func: Callable[[ServerCallContext], Awaitable[Any]]
    ) -> Any:
        return await plainly(super()._handle_non_streaming(request, handler_func))

    async def _handle_streaming(
        self, request: Request, handler_func: Callable[[ServerCallContext], AsyncIterator[Any]]
    ) -> EventSourceResponse:
        found: EventSourceResponse = await plainly(super()._handle_streaming(request, handler_func))
        return found


def rpc_app(handler: RequestHandler, context: ServerCallContextBuilder) -> ASGIApp:
    """JSON-RPC, every method."""
    return request_response(Dispatcher(handler, context).handle_requests)


def rest_routes(handler: RequestHandler, context: ServerCallContextBuilder, prefix: str) -> list[Route]:
    """HTTP+JSON under `prefix`: 0.3 under `/v1`, then 1.0. The SDK's own list has tenants too, beside the prefix."""
    rest = Rest(handler, context)
    configs = "/tasks/{id}/pushNotificationConfigs"
    table: list[tuple[str, str, Callable[[Request], Any]]] = [
        ("POST", "/message:send", rest.on_message_send),
        ("POST", "/message:stream", rest.on_message_send_stream),
        ("POST", "/tasks/{id}:cancel", rest.on_cancel_task),
        ("GET", "/tasks/{id}:subscribe", rest.on_subscribe_to_task),
        ("POST", "/tasks/{id}:subscribe", rest.on_subscribe_to_task),
        ("GET", "/tasks/{id}", rest.on_get_task),
        ("GET", "/tasks", rest.list_tasks),
        ("POST", configs, rest.set_push_notification),
        ("GET", configs, rest.list_push_notifications),
        ("GET", f"{configs}/{{push_id}}", rest.get_push_notification),
        ("DELETE", f"{configs}/{{push_id}}", rest.delete_push_notification),
        ("GET", "/extendedAgentCard", rest.handle_authenticated_agent_card),
    ]
    current = [Route(prefix + path, serve, methods=[method]) for method, path, serve in table]
    return [*v03.rest_routes(handler, context, prefix), *current]
