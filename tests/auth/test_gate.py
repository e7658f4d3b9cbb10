from __future__ import annotations

import os

import pytest

from a2a_serve.auth import Evidence
from a2a_serve.auth.gate import MAX_PEERS, Failures, Gate
from a2a_serve.auth.peer import PeerMethod
from a2a_serve.auth.tokens import TokenMethod, derive_local
from a2a_serve.core.errors import BadCredential, NotSignedIn, TooManySignIns
from a2a_serve.core.model import Pairing

LOCAL = derive_local(b"k" * 32)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def nobody(digest: bytes) -> Pairing | None:
    return None


def evidence(authorization: str | None = None, address: str = "10.0.0.1", uid: int | None = None) -> Evidence:
    headers = {} if authorization is None else {"authorization": authorization}
    return Evidence("here", address, uid, os.getpid(), headers)


def make_gate(clock: Clock | None = None) -> Gate:
    return Gate([TokenMethod(nobody, LOCAL), PeerMethod()], clock=clock or Clock())


async def fail(gate: Gate, address: str = "10.0.0.1") -> BadCredential:
    with pytest.raises(BadCredential) as caught:
        await gate.admit(evidence("Bearer a2as_pair_wrong", address))
    return caught.value


async def test_a_good_credential_is_admitted() -> None:
    assert (await make_gate().admit(evidence(f"Bearer {LOCAL}"))).id == "local:owner"


async def test_nothing_presented_is_not_signed_in() -> None:
    with pytest.raises(NotSignedIn):
        await make_gate().admit(evidence())


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer x.y.z", "Bearer", "", "nonsense"])
async def test_what_no_method_understands_is_bad_and_not_anonymous(header: str) -> None:
    with pytest.raises(BadCredential):
        await make_gate().admit(evidence(header))


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer a2as_pair_wrong", "Bearer x.y.z", ""])
async def test_a_bad_credential_is_no_fallback_to_the_sockets_uid(header: str) -> None:
    gate = make_gate()
    assert (await gate.admit(evidence(address="", uid=os.geteuid()))).method == "peer"
    with pytest.raises(BadCredential):
        await gate.admit(evidence(header, address="", uid=os.geteuid()))


def test_challenges_are_those_that_a_caller_can_answer() -> None:
    assert make_gate().challenges == ('Bearer realm="a2a-serve"',)


async def test_the_21st_failure_in_a_minute_is_told_to_wait_and_a_good_credential_still_passes() -> None:
    clock = Clock()
    gate = make_gate(clock)
    for _ in range(20):
        assert not isinstance(await fail(gate), TooManySignIns)
        clock.now += 1
    error = await fail(gate)
    assert isinstance(error, TooManySignIns)
    assert error.retry_after == 40
    assert (await gate.admit(evidence(f"Bearer {LOCAL}"))).is_owner
    assert not isinstance(await fail(gate, "10.0.0.2"), TooManySignIns)
    clock.now += 40
    assert not isinstance(await fail(gate), TooManySignIns)
    assert isinstance(await fail(gate), TooManySignIns)


async def test_presenting_nothing_is_no_failure() -> None:
    gate = make_gate()
    for _ in range(30):
        with pytest.raises(NotSignedIn):
            await gate.admit(evidence())
    assert not isinstance(await fail(gate), TooManySignIns)


async def test_uids_are_counted_apart() -> None:
    gate = Gate([PeerMethod([1])], limit=1, clock=Clock())
    for uid in (5, 6):
        with pytest.raises(BadCredential) as caught:
            await gate.admit(evidence(address="", uid=uid))
        assert not isinstance(caught.value, TooManySignIns)
    with pytest.raises(TooManySignIns):
        await gate.admit(evidence(address="", uid=5))


def test_peers_are_forgotten_beyond_a_bound() -> None:
    failures = Failures(1)
    for number in range(MAX_PEERS + 1):
        assert failures.add(f"peer {number}", 0.0) == 0
    assert failures.add("peer 0", 0.0) == 0
    assert failures.add(f"peer {MAX_PEERS}", 0.0) == 60
