"""Bearer tokens: their format, which can be checked offline, and the method that signs their holders in."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from collections.abc import Awaitable, Callable

from a2a_serve.auth import Evidence
from a2a_serve.core.errors import BadCredential
from a2a_serve.core.model import Identity, Pairing, Role

LOCAL, PAIR = "local", "pair"
"""Kinds of token. A token of one kind is never good where another is asked for."""

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_VALUE_LENGTH, _CHECK_LENGTH = 43, 6
_KIND = re.compile(r"[a-z]{2,10}")
_TOKEN = re.compile(rf"a2as_([a-z]{{2,10}})_[0-9A-Za-z]{{{_VALUE_LENGTH}}}_[0-9A-Za-z]{{{_CHECK_LENGTH}}}")
_BAD = "The token is not valid."
_BAD_HINT = "Ask the server's owner for a new one (`a2a-serve pair add NAME`)."


def mint(kind: str, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """A new token `a2as_<kind>_<256 bits>_<check>`; the last two parts are base62, the check is CRC-32.

    Raises ValueError for a kind that is not 2 to 10 small letters.
    """
    return _format(kind, random_bytes(32))


def derive_local(state_key: bytes) -> str:
    """The built-in owner's token: made from the state key each time, so that it lies nowhere."""
    return _format(LOCAL, hmac.digest(state_key, b"local owner token", "sha256"))


def kind_of(token: str) -> str | None:
    """The kind of a well-formed token, None for anything else. Needs no database: a mistyped token fails here."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    body, _, check = token.rpartition("_")
    return found[1] if check == _checksum(body) else None


def digest(token: str) -> bytes:
    """What is stored instead of the token: SHA-256, enough for 256 random bits."""
    return hashlib.sha256(token.encode()).digest()


def _format(kind: str, value: bytes) -> str:
    if not _KIND.fullmatch(kind):
        raise ValueError("a token's kind is 2 to 10 small letters")
    body = f"a2as_{kind}_{_base62(int.from_bytes(value), _VALUE_LENGTH)}"
    return f"{body}_{_checksum(body)}"


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    symbols = []
    for _ in range(length):
        number, index = divmod(number, 62)
        symbols.append(_ALPHABET[index])
    return "".join(reversed(symbols))


class TokenMethod:
    """`Authorization: Bearer <token>` (RFC 6750) for the local owner and for pairings.

    `find` gives the pairing whose token has a digest, revoked ones too; it is asked at each request, so that a
    revocation acts at once. `owner_name` is what people see for the local owner: the name of the OS user.
    """

    name = "token"
    challenge = 'Bearer realm="a2a-serve"'

    def __init__(
        self,
        find: Callable[[bytes], Awaitable[Pairing | None]],
        local_token: str,
        owner_name: str = "owner",
    ) -> None:
        self._find = find
        self._local = local_token.encode()
        self._owner = Identity("local:owner", owner_name, Role.OWNER, self.name)

    async def identify(self, evidence: Evidence) -> Identity | None:
        scheme, _, token = evidence.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token.strip(" ")
        if not token.startswith("a2as_"):
            return None
        if hmac.compare_digest(token.encode("utf-8", "replace"), self._local):
            return self._owner
        return await self._paired(token)

    async def _paired(self, token: str) -> Identity:
        pairing = await self._find(digest(token)) if kind_of(token) == PAIR else None
        if pairing is None or pairing.revoked_at is not None:
            raise BadCredential(_BAD, _BAD_HINT)
        return Identity(f"pair:{pairing.name}", pairing.name, pairing.role, self.name)
