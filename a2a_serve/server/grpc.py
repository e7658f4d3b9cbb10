"""A2A over gRPC: the SDK's services of v1.0 and v0.3 on one port, behind the same guard as the HTTP bindings.

Order, as there: who it is, before a byte of the message is parsed; the message; the protocol version; the call.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

import grpc
import grpc.aio
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import add_A2AServiceServicer_to_server as add_v03
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import GrpcHandler, GrpcServerCallContextBuilder
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_v10
from a2a.utils.errors import A2AError, InternalError, InvalidParamsError, InvalidRequestError, VersionNotSupportedError
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from a2a_serve.auth import Evidence
from a2a_serve.auth.gate import Gate
from a2a_serve.core.errors import BadCredential, NotSignedIn, TooManySignIns
from a2a_serve.core.model import Identity
from a2a_serve.server import v03
from a2a_serve.server.a2a import Caller
from a2a_serve.server.json_hygiene import JsonLimits
from a2a_serve.server.message_hygiene import check_message
from a2a_serve.server.refusals import DOMAIN, Refused

_log = logging.getLogger(__name__)

DETAILS = "grpc-status-details-bin"
_Call: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Application(grpc.GenericRpcHandler):
    """Every A2A method that gRPC callers can reach; what a `GrpcListener` serves. `listener` is that one's name."""

    def __init__(
        self,
        handler: RequestHandler,
        gate: Gate,
        *,
        listener: str = "grpc",
        limits: JsonLimits | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._gate, self._listener = gate, listener
        self._limits = limits or JsonLimits()
        self._new_id = new_id
        context = _CallerContext()
        methods = _Methods()
        current, legacy = GrpcHandler(handler, context), CompatGrpcHandler(handler, context)
        add_v10(current, methods)  # type: ignore[no-untyped-call]
        add_v03(legacy, methods)  # type: ignore[no-untyped-call]
        legacy.handler03 = v03.Translator(handler)
        servicers = {
            "lf.a2a.v1": _Service("1.0", current),
            "a2a.v1": _Service("0.3", legacy, v03.UNTRANSLATABLE),
        }
        self._methods = {
            path: self._guarded(method, servicers[path.strip("/").partition(".A2AService/")[0]])
            for path, method in methods.found.items()
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> _Method | None:
        return self._methods.get(handler_call_details.method)

    def _guarded(self, method: _Method, service: _Service) -> _Method:
        """The method, given the bytes of its request instead of the parsed one."""

        async def answer(raw: bytes, call: _Call) -> Message:
            async with self._told_plainly(call, service):
                request, admitted = await self._admit(raw, call, method, service)
                response: Message = await cast(Any, method.unary_unary)(request, admitted)
                admitted.echo_extensions()
                return response

        async def stream(raw: bytes, call: _Call) -> None:
            async with self._told_plainly(call, service):
                request, admitted = await self._admit(raw, call, method, service)
                # closed here, so that a reader that left is not followed any further
                async with aclosing(cast(Any, method.unary_stream)(request, admitted)) as events:
                    async for event in events:
                        await call.write(event)
                admitted.echo_extensions()

        if method.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, None, method.response_serializer)
        return grpc.unary_unary_rpc_method_handler(answer, None, method.response_serializer)

    async def _admit(self, raw: bytes, call: _Call, method: _Method, service: _Service) -> tuple[Message, _Admitted]:
        metadata = _read_metadata(call)
        identity = await self._sign_in(call, metadata)
        request = _parse(raw, method, self._limits)
        _check_version(metadata, service.version)
        return request, _Admitted(call, identity, metadata)

    async def _sign_in(self, call: _Call, metadata: Mapping[str, list[str]]) -> Identity:
        """Raises _NotAdmitted."""
        presented = {"authorization": metadata["authorization"][0]} if "authorization" in metadata else {}
        try:
            return await self._gate.admit(Evidence(self._listener, _address(call.peer()), headers=presented))
        except TooManySignIns as error:
            wait = RetryInfo(retry_delay=Duration(seconds=error.retry_after))
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            raise _NotAdmitted(code, "TOO_MANY_SIGN_INS", "Too many failed sign-ins.", [wait]) from None
        except NotSignedIn:
            code = grpc.StatusCode.UNAUTHENTICATED
            raise _NotAdmitted(code, "NOT_SIGNED_IN", "A credential is needed here.") from None
        except BadCredential:
            code = grpc.StatusCode.UNAUTHENTICATED
            raise _NotAdmitted(code, "BAD_CREDENTIAL", "The credential is not valid.") from None

    @asynccontextmanager
    async def _told_plainly(self, call: _Call, service: _Service) -> AsyncIterator[None]:
        """A caller gets a status and one sentence with an id to quote; what went wrong inside goes to the log only."""
        request_id = self._new_id()
        call.set_trailing_metadata((("x-request-id", request_id),))
        try:
            yield
        except grpc.aio.AbortError:
            raise
        except _NotAdmitted as refused:
            await refused.abort(call, request_id)
        except A2AError as error:
            await service.servicer.abort_context(error, call)
        except service.callers_faults:
            await service.servicer.abort_context(InvalidParamsError("The message cannot be translated."), call)
        except Exception:
            _log.exception("call %s failed", request_id)
            await service.servicer.abort_context(InternalError("The server failed; its log has the cause."), call)


@dataclass(frozen=True, slots=True)
class _Service:
    version: str
    servicer: GrpcHandler | CompatGrpcHandler
    callers_faults: tuple[type[Exception], ...] = ()
    """Raised by the SDK for what the caller sent. Our own handler raises A2A errors only."""


class _Methods:
    """Stands in for a server, to learn which methods the generated code registers."""

    def __init__(self) -> None:
        self.found: dict[str, _Method] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same methods in an older form."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, _Method]) -> None:
        self.found |= {f"/{service}/{name}": method for name, method in handlers.items()}


class _Admitted:
    """A call as the SDK's servicers get it: with who is calling; the rest is the call's own."""

    def __init__(self, call: _Call, identity: Identity, metadata: Mapping[str, list[str]]) -> None:
        self._call = call
        self.identity, self.metadata = identity, metadata
        self.extensions: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def echo_extensions(self) -> None:
        """Tell which of the asked extensions were activated (A2A 1.0 section 3.2.6)."""
        if self.extensions:
            told = (HTTP_EXTENSION_HEADER.lower(), ", ".join(self.extensions))
            self._call.set_trailing_metadata((*self._call.trailing_metadata(), told))


class _CallerContext(GrpcServerCallContextBuilder):
    def build(self, context: _Call) -> ServerCallContext:
        admitted = cast(_Admitted, context)
        return ServerCallContext(
            user=Caller(admitted.identity),
            state={"extensions": admitted.extensions},
            requested_extensions=get_requested_extensions(admitted.metadata.get(HTTP_EXTENSION_HEADER.lower(), [])),
        )


class _NotAdmitted(Exception):
    def __init__(self, code: grpc.StatusCode, reason: str, sentence: str, details: Sequence[Message] = ()) -> None:
        super().__init__(sentence)
        self._code, self._reason, self._sentence, self._details = code, reason, sentence, details

    async def abort(self, call: _Call, request_id: str) -> None:
        number: int = self._code.value[0]
        status = Status(code=number, message=self._sentence)
        status.details.add().Pack(ErrorInfo(reason=self._reason, domain=DOMAIN, metadata={"requestId": request_id}))
        for each in self._details:
            status.details.add().Pack(each)
        call.set_trailing_metadata((*call.trailing_metadata(), (DETAILS, status.SerializeToString())))
        await call.abort(self._code, self._sentence)


def _read_metadata(call: _Call) -> dict[str, list[str]]:
    """The call's text metadata by name. Raises InvalidRequestError for one that must not come twice."""
    found: dict[str, list[str]] = {}
    for name, value in call.invocation_metadata() or ():
        if isinstance(value, str):
            found.setdefault(name.lower(), []).append(value)
    for name in ("authorization", "a2a-version"):
        if len(found.get(name, ())) > 1:
            raise InvalidRequestError(f"{name} must be there once.")
    return found


def _parse(raw: bytes, method: _Method, limits: JsonLimits) -> Message:
    """The request. Raises InvalidParamsError."""
    assert method.request_deserializer is not None
    try:
        request: Message = method.request_deserializer(raw)
        check_message(request, raw, limits)
    except DecodeError:
        raise InvalidParamsError("The message cannot be read.") from None
    except Refused as refused:
        at = {"errors": [{"field": refused.violation, "message": refused.sentence}]} if refused.violation else None
        raise InvalidParamsError(refused.sentence, at) from None
    return request


def _check_version(metadata: Mapping[str, list[str]], version: str) -> None:
    """Major.Minor exactly, whatever the patch; absent, the service itself says which version it is."""
    asked = metadata.get("a2a-version", [""])[0].strip()
    if asked and not re.fullmatch(rf"{re.escape(version)}(?:\.[0-9]{{1,3}})?", asked):
        raise VersionNotSupportedError(f"This service speaks A2A {version} only.")


def _address(peer: str) -> str:
    """The IP address in gRPC's name for a peer, such as `ipv4:127.0.0.1:5432` or `ipv6:%5B::1%5D:5432`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""
