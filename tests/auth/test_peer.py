from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_serve.auth import Evidence
from a2a_serve.auth.peer import PeerMethod, user_name
from a2a_serve.core.errors import BadCredential
from a2a_serve.core.model import Role


async def test_our_own_uid_is_the_owner() -> None:
    identity = await PeerMethod().identify(Evidence("control", uid=os.geteuid(), pid=os.getpid()))
    assert identity is not None
    assert (identity.id, identity.role, identity.method) == ("local:owner", Role.OWNER, "peer")
    assert identity.name == user_name(os.geteuid())


async def test_root_is_the_owner_too() -> None:
    identity = await PeerMethod().identify(Evidence("control", uid=0, pid=os.getpid()))
    assert identity is not None
    assert identity.is_owner


async def test_another_uid_is_refused() -> None:
    with pytest.raises(BadCredential):
        await PeerMethod().identify(Evidence("control", uid=os.geteuid() + 1, pid=os.getpid()))


async def test_uids_can_be_given() -> None:
    method = PeerMethod([4711])
    assert await method.identify(Evidence("control", uid=4711, pid=os.getpid())) is not None
    with pytest.raises(BadCredential):
        await method.identify(Evidence("control", uid=os.geteuid(), pid=os.getpid()))


async def test_no_uid_is_not_a_matter_of_this_method() -> None:
    assert await PeerMethod().identify(Evidence("local", address="127.0.0.1")) is None


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
async def test_a_process_that_cannot_be_seen_from_here_is_refused(pid: int) -> None:
    with pytest.raises(BadCredential):
        await PeerMethod().identify(Evidence("control", uid=os.geteuid(), pid=pid))


@pytest.fixture
def contained() -> Iterator[tuple[int, int]]:
    """(pid of a process here, pid of its child in a pid namespace of its own)."""
    as_user = [] if os.geteuid() == 0 else ["--user"]
    with subprocess.Popen(
        ["unshare", *as_user, "--pid", "--fork", "--kill-child", "sh", "-c", "echo up; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == b"up\n"
        inner = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]
        yield outer.pid, int(inner)
        outer.kill()


async def test_a_process_of_another_pid_namespace_is_refused(contained: tuple[int, int]) -> None:
    """As a container's process, which may well run under our uid (research/security.md F12)."""
    outer, inner = contained
    assert await PeerMethod().identify(Evidence("control", uid=os.geteuid(), pid=outer)) is not None
    with pytest.raises(BadCredential):
        await PeerMethod().identify(Evidence("control", uid=os.geteuid(), pid=inner))


def test_a_user_without_a_name_is_called_by_number() -> None:
    assert user_name(3_999_999_999) == "uid 3999999999"
