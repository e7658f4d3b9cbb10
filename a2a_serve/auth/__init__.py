"""The auth family's contract: from what was presented to one identity.

A method gives one of three answers: not mine (None), who (an Identity), mine and bad (raises BadCredential).
A bad credential is never a fall-back to anonymous or to another method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from a2a_serve.core.model import Identity

KINDS = {"token": "a2a_serve.auth.tokens:TokenMethod"}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was presented: header names in lower case, and the facts of the socket."""

    listener: str
    address: str = ""
    uid: int | None = None
    pid: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class AuthMethod(Protocol):
    name: str
    challenge: str
    """The WWW-Authenticate value that invites this method's credential; empty for a method that reads only the
    socket's facts: such a method is not asked when an Authorization header is there."""

    async def identify(self, evidence: Evidence) -> Identity | None:
        """Who presented it, or None when no credential of this method is there. Raises BadCredential."""
