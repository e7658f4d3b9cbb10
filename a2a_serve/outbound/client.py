"""Calls another A2A agent (or our own server, as any client does): send, follow, get. Errors in plain words."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import httpx

from a2a_serve.core.errors import BadCredential, NotAllowed, NotSignedIn, RemoteError, StreamLost, TimedOut, Unreachable

os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")  # read when the SDK is imported

from a2a.client.card_resolver import A2ACardResolver
from a2a.client.client import Client, ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.errors import AgentCardResolutionError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import ParseError

CARD_PATH = "/.well-known/agent-card.json"
BINDINGS = ["JSONRPC", "HTTP+JSON"]
"""By preference, among those that the card names."""
TIMEOUT = httpx.Timeout(None, connect=10)
"""Seconds. Only connecting is bounded: a turn may be silent for as long as it likes."""
TERMINAL = frozenset(
    {
        pb.TaskState.TASK_STATE_COMPLETED,
        pb.TaskState.TASK_STATE_FAILED,
        pb.TaskState.TASK_STATE_CANCELED,
        pb.TaskState.TASK_STATE_REJECTED,
    }
)

TokenFor = Callable[[str], str | None]
"""The token for a URL, None when there is none. It may block: it is called in a thread."""

Events = AsyncGenerator[pb.StreamResponse, None]


class TokenAuth(httpx.Auth):
    """Adds to each request the token of the origin that it really goes to, and no other's."""

    def __init__(self, token_for: TokenFor) -> None:
        self._token_for = token_for
        self._known: dict[str, str | None] = {}

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        origin = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
        if origin not in self._known:
            self._known[origin] = await asyncio.to_thread(self._token_for, origin)
        if token := self._known[origin]:
            request.headers["Authorization"] = f"Bearer {token}"
        yield request


class RemoteAgent:
    """An agent whose card has been read. All methods raise Unreachable, NotSignedIn, NotAllowed or RemoteError."""

    def __init__(self, card: pb.AgentCard, http: httpx.AsyncClient) -> None:
        self.card = card
        self._streaming, self._plain = (_client(card, http, streaming) for streaming in (True, False))

    def send(self, message: pb.Message, *, stream: bool = True, at_once: bool = False) -> Events:
        """What comes of a message: the task and then its events up to a question or the end, or one message.

        With `stream` off one whole task comes at that point, with `at_once` one as soon as it exists.
        """
        request = pb.SendMessageRequest(message=message)
        request.configuration.return_immediately = at_once
        client = self._streaming if stream and not at_once else self._plain
        return _told(client.send_message(request))

    async def follow(self, task_id: str) -> Events:
        """The whole task, then its events to its end, through questions; just the task when it has ended."""
        request = pb.SubscribeToTaskRequest(id=task_id)
        try:
            async with aclosing(_told(self._streaming.subscribe(request))) as events:
                async for event in events:
                    yield event
        except _Unsupported:
            yield pb.StreamResponse(task=await self.get(task_id))

    async def get(self, task_id: str) -> pb.Task:
        """The task as it is now."""
        with _translated():
            return await self._plain.get_task(pb.GetTaskRequest(id=task_id))


class _Unsupported(RemoteError):
    """The agent does not do this, or not on this task any more."""


@asynccontextmanager
async def connect(url: str, token_for: TokenFor) -> AsyncIterator[RemoteAgent]:
    """The agent at `url`: its base URL, its card's URL, or any address below its origin.

    Raises Unreachable, or RemoteError when there is no agent card or none of its bindings is known here.
    """
    host = urlsplit(url).hostname
    is_local = host in ("localhost", "::1") or bool(host and host.startswith("127."))
    async with httpx.AsyncClient(timeout=TIMEOUT, auth=TokenAuth(token_for), trust_env=not is_local) as http:
        with _translated():
            card = await _card(url, http)
        try:
            agent = RemoteAgent(card, http)
        except ValueError as error:
            raise RemoteError(f"The agent at {url} offers no binding that is known here.") from error
        yield agent


async def _card(url: str, http: httpx.AsyncClient) -> pb.AgentCard:
    base = url.split("#")[0].split("?")[0].removesuffix(CARD_PATH).rstrip("/")
    parts = urlsplit(base)
    try:
        return await _fetch_card(base, http)
    except AgentCardResolutionError as error:
        if error.status_code is None or error.status_code < 400 or not parts.path:
            raise
        return await _fetch_card(f"{parts.scheme}://{parts.netloc}", http)


async def _fetch_card(base: str, http: httpx.AsyncClient) -> pb.AgentCard:
    # the card is public: no token goes out before it is known where to
    return await A2ACardResolver(http, base).get_agent_card(http_kwargs={"auth": None})


def _client(card: pb.AgentCard, http: httpx.AsyncClient, streaming: bool) -> Client:
    config = ClientConfig(
        httpx_client=http, supported_protocol_bindings=BINDINGS, use_client_preference=True, streaming=streaming
    )
    return ClientFactory(config).create(card)


async def _told(events: AsyncIterator[pb.StreamResponse]) -> Events:
    """The same events, with errors in our words."""
    begun = False
    with _translated(lambda: begun):
        try:
            async for event in events:
                begun = True
                yield event
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()


@contextmanager
def _translated(begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    try:
        yield
    except AgentCardResolutionError as error:
        if isinstance(error.__cause__, httpx.RequestError):
            raise _no_connection(error.__cause__, begun()) from error
        status = f" (HTTP {error.status_code})" if error.status_code else ""
        raise RemoteError(f"There is no agent card{status}.", "Check the URL.") from error
    except (TaskNotFoundError, UnsupportedOperationError) as error:
        kind = _Unsupported if isinstance(error, UnsupportedOperationError) else RemoteError
        raise kind(f"{error.message.rstrip('.')}.") from error
    except NotImplementedError as error:
        raise _Unsupported("The agent does not stream.") from error
    except A2AError as error:
        raise _plain(error, begun()) from error
    except httpx.RequestError as error:
        raise _no_connection(error, begun()) from error
    except (
        ParseError,
        RecursionError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:  # let through by the SDK
        raise RemoteError("The agent's answer is not A2A.") from error


def _plain(error: A2AError, begun: bool) -> Exception:
    match error.__cause__:
        case httpx.HTTPStatusError() as refused:
            return _refusal(refused.response.status_code)
        case httpx.TimeoutException() as late if not isinstance(late, httpx.ConnectTimeout):
            return TimedOut("The agent took too long.")
        case httpx.RequestError() as broken:
            return _no_connection(broken, begun)
    message = error.message.strip() or "The agent refused."
    return RemoteError(message if message.endswith((".", "!", "?")) else f"{message}.")


def _refusal(status: int) -> Exception:
    if status == 401:
        return NotSignedIn(
            "The agent wants a token, and there is none that it takes.",
            "Local servers are asked for theirs; others' tokens are read from credentials.json.",
        )
    if status == 403:
        return NotAllowed("The agent does not allow this.")
    if status == 429:
        return BadCredential("The agent wants no more calls for now.", "Try again in a minute.")
    return RemoteError(f"The agent answers with HTTP {status}.")


def _no_connection(error: httpx.RequestError, begun: bool) -> Exception:
    lost = begun or not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol))
    if lost:
        return StreamLost("The connection to the agent was lost.", "Its task goes on.")
    where = f"{error.request.url.scheme}://{error.request.url.netloc.decode('ascii', 'replace')}"
    return Unreachable(f"Nothing answers at {where}.", "Check the URL, and that the agent runs.")
