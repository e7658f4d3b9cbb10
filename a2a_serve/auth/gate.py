"""The gate: all methods of one listener, one identity, and a brake on guessing (requirements I5, I8)."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from a2a_serve.auth import AuthMethod, Evidence
from a2a_serve.core.errors import BadCredential, NotSignedIn, TooManySignIns
from a2a_serve.core.model import Identity

WINDOW = 60.0
"""Seconds over which a peer's failures are counted."""

MAX_PEERS = 4096
"""Peers remembered; beyond, the one that failed longest ago is forgotten."""


class Failures:
    """Failed sign-ins of each peer in the last minute. Times are seconds of any steady clock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, peer: str, now: float) -> float:
        """Count one failure; tell for how many seconds the peer is over the limit (0: it is not)."""
        times = self._times.setdefault(peer, deque(maxlen=self._limit))
        self._times.move_to_end(peer)
        while times and now - times[0] >= WINDOW:
            times.popleft()
        over = len(times) == self._limit
        wait = times[0] + WINDOW - now if over else 0.0
        if not over:
            times.append(now)
        while len(self._times) > MAX_PEERS:
            self._times.popitem(last=False)
        return wait


class Gate:
    """Asks each method in turn. `limit` is how many bad credentials a peer may present in a minute.

    A presented credential decides alone: a bad one, or one that no method understands, is never a fall-back to
    another method or to the socket's facts.
    """

    def __init__(
        self, methods: Sequence[AuthMethod], *, limit: int = 20, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._methods = tuple(methods)
        self._failures = Failures(limit)
        self._clock = clock

    @property
    def challenges(self) -> tuple[str, ...]:
        """WWW-Authenticate values (RFC 9110 11.6.1) of the methods that a caller can use."""
        return tuple(method.challenge for method in self._methods if method.challenge)

    async def admit(self, evidence: Evidence) -> Identity:
        """Who it is. A good credential passes at any time.

        Raises NotSignedIn when nothing was presented, BadCredential when it is not valid, and TooManySignIns
        instead of that from a peer over the limit.
        """
        try:
            identity = await self._identify(evidence)
        except BadCredential as error:
            raise self._counted(error, evidence) from None
        if identity is None:
            raise NotSignedIn("A credential is needed here.", "Present a token: `a2a-serve credential get URL`.")
        return identity

    async def _identify(self, evidence: Evidence) -> Identity | None:
        presented = "authorization" in evidence.headers
        for method in self._methods:
            if presented and not method.challenge:
                continue
            identity = await method.identify(evidence)
            if identity is not None:
                return identity
        if presented:
            raise BadCredential("The credential is not valid.")
        return None

    def _counted(self, error: BadCredential, evidence: Evidence) -> BadCredential:
        peer = evidence.address or f"{evidence.listener} uid {evidence.uid}"
        wait = self._failures.add(peer, self._clock())
        if not wait:
            return error
        seconds = math.ceil(wait)
        return TooManySignIns("Too many failed sign-ins.", f"Try again in {seconds} s.", retry_after=seconds)
