from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from sandbox.conftest import MakeSpec, Start
from sandbox.reading import SECONDS, read_all, read_until

from a2a_serve.core.errors import SandboxUnavailable
from a2a_serve.sandbox import SandboxSpec
from a2a_serve.sandbox.local import LocalSandbox, child_environment

STUBBORN = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


def script(text: str) -> tuple[str, str, str]:
    return (sys.executable, "-c", textwrap.dedent(text))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def test_bytes_go_both_ways_in_the_workspace(spec: MakeSpec, local: Start, project: Path) -> None:
    process = await local(spec("sh", "-c", "pwd; cat"))
    assert await read_until(process, b"\n") == f"{project}\n".encode()
    await process.write(b"hello")
    assert await read_until(process, b"hello") == b"hello"
    await process.stop(SECONDS)
    assert (await process.wait()).code in (0, -signal.SIGTERM)  # its end of input, or the signal right after it


@pytest.mark.parametrize(
    ("ending", "code", "words"), [("exit 7", 7, "exit code 7"), ("kill -9 $$", -9, "signal 9"), ("exit 0", 0, "code 0")]
)
async def test_how_it_ended(spec: MakeSpec, local: Start, ending: str, code: int, words: str) -> None:
    process = await local(spec("sh", "-c", f"echo last words; {ending}"))
    assert await read_all(process) == b"last words\n"
    ended = await process.wait()
    assert ended.code == code
    assert words in ended.sentence
    with pytest.raises(ConnectionError):
        await process.write(b"too late")
    assert await process.read(10) == b""


async def test_an_agent_that_nobody_reads_is_held_up(spec: MakeSpec, local: Start, tmp_path: Path) -> None:
    count = tmp_path / "count"
    process = await local(spec(*script(f"""
        import os, sys
        with open({str(count)!r}, "w") as count:
            for block in range(300):
                sys.stdout.buffer.write(b"x" * 100_000)
                sys.stdout.buffer.flush()
                count.seek(0); count.write(str(block)); count.flush()
    """)))  # fmt: skip

    def written() -> int:
        return int(count.read_text() or 0) if count.exists() else 0

    await until(lambda: written() > 0)
    seen = -1
    while seen != written():  # it has come to rest when half a second brings nothing
        seen = written()
        await asyncio.sleep(0.5)
    assert seen < 100
    assert len(await read_all(process)) == 30_000_000


async def test_a_burst_of_stderr_holds_nothing_up_and_its_end_is_kept(spec: MakeSpec, local: Start) -> None:
    process = await local(spec(*script("""
        import sys
        sys.stderr.write("noise " * 1_400_000 + "the end")
        sys.stderr.flush()
        print("done")
    """)))  # fmt: skip
    assert await read_all(process) == b"done\n"
    await process.wait()
    await until(lambda: process.stderr_tail().endswith("the end"))
    assert len(process.stderr_tail()) == 64 << 10


@pytest.mark.parametrize("grace", [0, 0.2])
async def test_what_it_started_is_gone_after_stop(spec: MakeSpec, local: Start, grace: float) -> None:
    """A grandchild that ignores TERM, in a session of its own."""
    process = await local(spec("sh", "-c", "trap '' TERM; python3 -c \"$0\" & wait; sleep 600", script(STUBBORN)[2]))
    grandchild = int(await read_until(process, b"\n"))
    assert is_alive(grandchild)
    await asyncio.wait_for(process.stop(grace), SECONDS)
    await until(lambda: not is_alive(grandchild))
    assert (await process.wait()).code == -signal.SIGKILL
    await process.stop(grace)


async def test_a_child_that_holds_stdout_does_not_hide_the_agents_death(spec: MakeSpec, local: Start) -> None:
    process = await local(spec("sh", "-c", "sleep 600 & echo $!; exit 3"))
    child = int(await read_all(process))
    assert (await process.wait()).code == 3
    await until(lambda: not is_alive(child))


async def test_reap_ends_what_another_boot_left_and_nothing_else(spec: MakeSpec, local: Start, tmp_path: Path) -> None:
    old = await local(spec("sh", "-c", 'python3 -c "$0" & wait', script(STUBBORN)[2]))
    grandchild = int(await read_until(old, b"\n"))
    current = await local(spec("cat", boot="boot-2"))
    other = await local(spec("cat", owner="another-directory"))
    sandbox = LocalSandbox()
    assert await sandbox.reap(spec().owner, "boot-2") == 1
    await until(lambda: not is_alive(grandchild))
    assert (await old.wait()).code == -signal.SIGKILL
    for left in (current, other):
        await left.write(b"still here")
        assert await read_until(left, b"here") == b"still here"
    assert await sandbox.reap(spec().owner, "boot-2") == 0


@pytest.mark.req("S5")
def test_the_servers_own_settings_and_tokens_are_not_passed(spec: Callable[..., SandboxSpec]) -> None:
    own = {
        "HOME": "/home/alice",
        "PATH": "/bin",
        "A2A_SERVE_TELEGRAM__TOKEN": "secret",
        "A2A_SERVE_PORT": "1",
        "GITHUB_TOKEN": "secret",
    }
    made = child_environment(own, spec(environment={"NPM_TOKEN": "meant"}), "boot/1")
    assert made == {
        "HOME": "/home/alice",
        "PATH": "/bin",
        "NPM_TOKEN": "meant",
        "A2A_SERVE_OWNER": spec().owner,
        "A2A_SERVE_BOOT": "boot/1",
    }


async def test_a_missing_command_is_one_sentence(spec: MakeSpec, local: Start, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="no-such-agent cannot be started") as missing:
        await local(spec("no-such-agent"))
    assert missing.value.hint
    with pytest.raises(SandboxUnavailable, match="not a folder"):
        await local(spec("cat", workspace=tmp_path / "gone"))


@pytest.mark.req("S6")
def test_what_is_lost_is_said(spec: MakeSpec) -> None:
    assert "without a sandbox" in " ".join(LocalSandbox().warnings(spec()))


async def test_a_reader_waiting_at_the_time_of_stop_sees_the_end(spec: MakeSpec, local: Start) -> None:
    process = await local(spec("cat"))
    reading = asyncio.create_task(process.read(10))
    await process.stop(0)
    assert await asyncio.wait_for(reading, SECONDS) == b""
