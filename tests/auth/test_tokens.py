from __future__ import annotations

import hashlib
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_serve.auth import Evidence
from a2a_serve.auth.tokens import PAIR, TokenMethod, derive_local, digest, kind_of, mint
from a2a_serve.core.errors import BadCredential
from a2a_serve.core.model import Identity, Pairing, Role

LOCAL = derive_local(b"k" * 32)
ALICE = mint(PAIR, lambda size: b"\x01" * size)
GONE = mint(PAIR, lambda size: b"\x02" * size)
PAIRINGS = {
    digest(ALICE): Pairing("alice", Role.USER, 1.0),
    digest(GONE): Pairing("gone", Role.USER, 1.0, revoked_at=2.0),
}


async def find(value: bytes) -> Pairing | None:
    return PAIRINGS.get(value)


def method() -> TokenMethod:
    return TokenMethod(find, LOCAL, "ann")


async def sign_in(authorization: str) -> Identity | None:
    return await method().identify(Evidence("local", "127.0.0.1", headers={"authorization": authorization}))


@given(st.binary(min_size=32, max_size=32), st.from_regex(r"[a-z]{2,10}", fullmatch=True))
def test_every_token_has_the_format_and_its_kind(value: bytes, kind: str) -> None:
    token = mint(kind, lambda size: value[:size])
    assert re.fullmatch(rf"a2as_{kind}_[0-9A-Za-z]{{43}}_[0-9A-Za-z]{{6}}", token)
    assert kind_of(token) == kind


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_two_values_never_give_one_token(one: bytes, other: bytes) -> None:
    assert (mint(PAIR, lambda _: one) == mint(PAIR, lambda _: other)) == (one == other)


@given(st.binary(min_size=32, max_size=32), st.data())
def test_one_wrong_character_is_found_offline(value: bytes, data: st.DataObject) -> None:
    token = mint(PAIR, lambda _: value)
    place = data.draw(st.integers(len("a2as_pair_"), len(token) - 1))
    wrong = data.draw(st.sampled_from(sorted(set(string.ascii_letters + string.digits) - {token[place]})))
    assert kind_of(token[:place] + wrong + token[place + 1 :]) is None


@given(st.text())
def test_any_text_is_told_from_a_token(text: str) -> None:
    assert kind_of(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "a2as_", ALICE + "\n", " " + ALICE, ALICE[:-1], ALICE + "A", ALICE.upper(), ALICE.replace("_", "-")],
)
def test_near_tokens_are_none(text: str) -> None:
    assert kind_of(text) is None


def test_mint_takes_256_random_bits() -> None:
    asked: list[int] = []

    def random_bytes(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    mint(PAIR, random_bytes)
    assert asked == [32]


@pytest.mark.parametrize("kind", ["", "x", "Pair", "pa_ir", "pair ", "p" * 11, "pär"])
def test_a_kind_is_small_letters(kind: str) -> None:
    with pytest.raises(ValueError, match="kind"):
        mint(kind)


def test_the_local_token_is_the_same_for_one_key_and_differs_for_another() -> None:
    assert derive_local(b"k" * 32) == LOCAL
    assert derive_local(b"l" * 32) != LOCAL
    assert kind_of(LOCAL) == "local"


def test_a_digest_is_sha256_of_the_whole_token() -> None:
    assert digest(ALICE) == hashlib.sha256(ALICE.encode("ascii")).digest()


async def test_the_local_token_is_the_owner() -> None:
    assert await sign_in(f"Bearer {LOCAL}") == Identity("local:owner", "ann", Role.OWNER, "token")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_pairing_is_who_it_names(scheme: str) -> None:
    assert await sign_in(f"{scheme} {ALICE}") == Identity("pair:alice", "alice", Role.USER, "token")


@pytest.mark.parametrize(
    "token",
    [
        GONE,
        mint(PAIR, lambda size: b"\x03" * size),
        ALICE[:-1] + ("0" if ALICE[-1] != "0" else "1"),
        "a2as_",
        "a2as_pair_short_123456",
        f"{ALICE} {ALICE}",
        derive_local(b"other" * 7),
        LOCAL[:-1],
        ALICE + "\xff",
    ],
)
async def test_what_claims_to_be_ours_and_is_not_good_is_bad(token: str) -> None:
    with pytest.raises(BadCredential) as caught:
        await sign_in(f"Bearer {token}")
    assert token not in str(caught.value)


async def test_a_kind_is_not_good_for_another() -> None:
    node = mint("node", lambda size: b"\x04" * size)
    PAIRINGS[digest(node)] = Pairing("mallory", Role.USER, 1.0)
    try:
        with pytest.raises(BadCredential):
            await sign_in(f"Bearer {node}")
    finally:
        del PAIRINGS[digest(node)]


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer eyJhbGciOi.e30.x", f"Token {ALICE}", ALICE, ""])
async def test_what_is_not_ours_is_left_to_the_gate(header: str) -> None:
    assert await sign_in(header) is None


async def test_without_a_header_nobody_is_signed_in() -> None:
    assert await method().identify(Evidence("local")) is None
