"""Agents in real containers: what holds them in, how they end, and what the engine says when it does not work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from docker import APIClient
from sandbox.conftest import MakeSpec, Start
from sandbox.reading import SECONDS, read_all, read_until

from a2a_serve.core.errors import ImageMissing, SandboxBroken, SandboxUnavailable, WorkspaceRefused
from a2a_serve.sandbox import Limits
from a2a_serve.sandbox.attached import AttachedProcess
from a2a_serve.sandbox.docker import DockerSandbox, connect, engine_url, unreachable

pytestmark = pytest.mark.docker


async def shell(start: Start, spec: MakeSpec, script: str, **changes: object) -> str:
    """What a shell script says inside, stderr too."""
    process = await start(spec("sh", "-c", f"exec 2>&1; {script}", **changes))
    return (await read_all(process)).decode()


@pytest.mark.req("S1", "S2")
async def test_a_sandbox_seen_from_inside(spec: MakeSpec, docker: Start, project: Path) -> None:
    said = await shell(
        docker,
        spec,
        """
        grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t' ' '
        echo "user $(id -u):$(id -g) $(whoami) $HOME"; pwd
        touch /usr/x /etc/x /x || true
        cp /bin/true /tmp/run && /tmp/run && echo 'tmp runs'
        touch "$HOME/kept" && echo 'home is kept'
        echo "interfaces $(ls /sys/class/net | tr '\\n' ' ')"
        cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null
        ps -o args= -p 1 | cut -c1-20; ls /var/run/docker.sock
        """,
        limits=Limits(pids=77),
    )
    owner = project.stat().st_uid
    for line in (
        *("CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"),
        *(f"user {owner}:{project.stat().st_gid} agent /home/agent", str(project), "tmp runs", "home is kept"),
        *("interfaces lo ", "77", "/sbin/docker-init --"),
    ):
        assert line in said.splitlines(), said
    assert said.count("Read-only file system") == 3
    assert "docker.sock': No such file" in said


@pytest.mark.req("S1")
async def test_files_belong_to_the_workspaces_owner(spec: MakeSpec, docker: Start, project: Path) -> None:
    await shell(docker, spec, "umask 022; echo hi > made; mkdir folder; git init -q repo")
    for name in ("made", "folder", "repo/.git/config", ".a2a"):
        facts = (project / name).stat()
        assert (facts.st_uid, facts.st_gid) == (project.stat().st_uid, project.stat().st_gid), name
    assert (spec().home.stat().st_uid) == project.stat().st_uid


@pytest.mark.req("S1")
async def test_a_root_owned_workspace_gives_root_without_any_capability(
    spec: MakeSpec, docker: Start, project: Path
) -> None:
    os.chown(project, 0, 0)
    (project / "theirs").touch(mode=0o600)
    os.chown(project / "theirs", 4321, 4321)
    said = await shell(docker, spec, "id -u; echo hi > made; cat theirs; chown 1:1 made; grep CapEff /proc/self/status")
    assert said.startswith("0\n")
    assert said.count("not permitted") + said.count("Permission denied") == 2
    assert "CapEff:\t0000000000000000" in said
    assert (project / "made").stat().st_uid == 0
    assert "belongs to root" in " ".join(DockerSandbox().warnings(spec()))


@pytest.mark.req("S2")
async def test_no_setuid_bit_can_be_made_in_any_way(spec: MakeSpec, docker: Start, project: Path) -> None:
    """F11: it would be a setuid program of the owner's, on the host. Each way is refused, and plain ones work."""
    attempts = """if True:
        import ctypes, os, stat
        libc = ctypes.CDLL(None, use_errno=True)
        def tell(name, work):
            try: work(); print(name, 'done')
            except OSError as error: print(name, error.strerror)
        def raw(*arguments):
            if libc.syscall(*arguments) < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        open('plain', 'w').close()
        here = os.open('.', os.O_DIRECTORY)
        for bit in (0o4755, 0o2755, 0o6777):
            tell('chmod', lambda: os.chmod('plain', bit))
            tell('fchmod', lambda: os.fchmod(os.open('plain', os.O_RDWR), bit))
            tell('fchmodat', lambda: os.chmod('plain', bit, dir_fd=here))
            tell('open', lambda: os.open('made', os.O_CREAT | os.O_WRONLY, bit))
            tell('tmpfile', lambda: os.open('.', os.O_TMPFILE | os.O_WRONLY, bit))
            tell('mknod', lambda: os.mknod('node', stat.S_IFREG | bit))
            tell('mkfifo', lambda: os.mknod('fifo', stat.S_IFIFO | bit))
            if os.uname().machine == 'x86_64':
                tell('open2', lambda: raw(2, b'made', os.O_CREAT, bit))
                tell('creat', lambda: raw(85, b'made', bit))
        how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
        tell('openat2', lambda: raw(437, -100, b'made', how, 24))
        tell('fchmodat2', lambda: raw(452, -100, b'plain', 0o4755, 0))
        tell('io_uring', lambda: raw(425, 8, ctypes.create_string_buffer(120)))
        os.chmod('plain', 0o755); os.open('fine', os.O_CREAT | os.O_WRONLY, 0o1777)
        print('plain chmod done')
    """
    process = await docker(spec("python3", "-c", attempts))
    said = (await read_all(process)).decode().splitlines()
    assert process.stderr_tail() == ""
    assert said.pop() == "plain chmod done"
    assert len(said) >= 24
    refused = {line for line in said if line.endswith(("Operation not permitted", "Function not implemented"))}
    assert set(said) == refused
    assert {line.split()[0] for line in refused if "implemented" in line} == {"openat2", "fchmodat2", "io_uring"}
    assert [path.name for path in project.iterdir() if path.lstat().st_mode & 0o6000] == []


@pytest.mark.req("S3")
async def test_our_own_folder_is_hidden_and_stays(spec: MakeSpec, docker: Start, project: Path) -> None:
    state = project / ".a2a"
    state.mkdir()
    (state / "config.yaml").write_text("secret")
    said = await shell(
        docker,
        spec,
        "ls -A .a2a | wc -l; touch .a2a/x; mv .a2a moved; rm -rf .a2a; rmdir .a2a; umount .a2a; ls -d .a2a",
    )
    assert said.splitlines()[0] == "0"
    assert said.splitlines()[-1] == ".a2a"
    assert (state / "config.yaml").read_text() == "secret"
    assert os.listdir(state) == ["config.yaml"]


def run_git(project: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", project, "-c", "safe.directory=*", *arguments], check=True)


def repository(project: Path) -> Path:
    run_git(project, "init", "-q")
    for path in (project, *project.rglob("*")):
        os.chown(path, project.stat().st_uid, project.stat().st_gid)
    return project / ".git"


@pytest.mark.req("S3")
async def test_git_works_but_its_hooks_and_settings_stay(spec: MakeSpec, docker: Start, project: Path) -> None:
    git = repository(project)
    before = (git / "config").read_text()
    said = await shell(
        docker,
        spec,
        """
        mv .git .g2; mkdir -p .git/hooks; mv .git/hooks .git/h2; rm -rf .git/hooks .git/modules; mv .git/info .git/i2
        echo evil > .git/hooks/pre-commit; echo evil >> .git/config; git config core.fsmonitor evil
        echo '* filter=evil' > .git/info/attributes; ln -s /tmp .git/hooks/x
        echo hi > file; git add file && git commit -qm first && git log --oneline
        """,
    )
    assert said.rstrip().endswith("first"), said
    assert (git / "config").read_text() == before
    assert not (git / "hooks/pre-commit").exists()
    assert (git / "info/attributes").read_text() == ""
    assert not (project / ".g2").exists()


@pytest.mark.req("S3")
async def test_a_host_tool_that_renames_over_a_protected_file_is_noticed(
    spec: MakeSpec, docker: Start, project: Path
) -> None:
    git = repository(project)
    process = await docker(spec("cat"))
    await process.check()
    run_git(project, "config", "user.name", "Alice")
    with pytest.raises(SandboxBroken, match=str(git / "config")):
        await process.check()


@pytest.mark.req("S3")
async def test_agent_folders_are_hidden_where_they_exist_and_not_made(
    spec: MakeSpec, docker: Start, project: Path
) -> None:
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text("{}")
    said = await shell(
        docker, spec, "ls -A .claude | wc -l; touch .claude/x; ls -A", agent_folders=(".claude", ".opencode")
    )
    assert said.splitlines()[0] == "0"
    assert "Read-only file system" in said
    assert sorted(os.listdir(project)) == [".a2a", ".claude"]
    assert os.listdir(project / ".claude") == ["settings.json"]


async def test_a_refused_workspace_starts_nothing(spec: MakeSpec, docker: Start) -> None:
    with pytest.raises(WorkspaceRefused):
        await docker(spec("cat", workspace=Path("/usr")))


@pytest.mark.req("S9")
async def test_out_of_memory_is_the_cause(spec: MakeSpec, docker: Start) -> None:
    hungry = "held = []\nwhile True: held.append(bytearray(1 << 24))"
    process = await docker(spec("python3", "-c", hungry, limits=Limits(memory=64 << 20)))
    assert await read_all(process) == b""
    ended = await process.wait()
    assert ended.out_of_memory
    assert ended.code == 137
    assert "64 MiB" in ended.sentence


@pytest.mark.req("S9")
@pytest.mark.parametrize(
    ("ending", "code"), [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("kill -9 -1", 137)]
)
async def test_the_exit_code_is_the_agents(spec: MakeSpec, docker: Start, ending: str, code: int) -> None:
    process = await docker(spec("sh", "-c", f"echo last words; {ending}"))
    assert await read_all(process) == b"last words\n"
    assert (await process.wait()).code == code
    with pytest.raises(ConnectionError):
        await process.write(b"too late")


async def test_a_command_that_is_not_in_the_image(spec: MakeSpec, docker: Start) -> None:
    process = await docker(spec("no-such-agent"))
    assert await read_all(process) == b""
    assert (await process.wait()).code == 127
    assert "no-such-agent: there is no such command in this image" in process.stderr_tail()


async def test_a_large_line_there_and_back_and_a_burst_of_stderr(spec: MakeSpec, docker: Start) -> None:
    process = await docker(spec("sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' n >&2; exec cat"))
    line = b"x" * 5_000_000 + b"\n"
    writing = asyncio.create_task(process.write(line))
    assert await read_until(process, b"\n") == line
    await writing
    assert process.stderr_tail() == "n" * (64 << 10)


async def test_an_agent_that_nobody_reads_is_held_up(spec: MakeSpec, docker: Start) -> None:
    flood = """if True:
        import sys
        for block in range(200):
            sys.stdout.buffer.write(b"x" * 100_000); sys.stdout.buffer.flush()
            with open("count", "w") as count: count.write(str(block))
    """
    count = spec().workspace / "count"
    process = await docker(spec("python3", "-c", flood))
    seen, now = -1, -2
    async with asyncio.timeout(SECONDS):
        while seen != now or now < 0:
            seen = now
            await asyncio.sleep(0.4)
            now = int(count.read_text() or 0) if count.exists() else -2
    assert now < 150
    assert len(await read_all(process)) == 20_000_000


@pytest.mark.parametrize("grace", [0, 1])
async def test_stop_leaves_nothing(spec: MakeSpec, docker: Start, engine: APIClient, grace: float) -> None:
    process = await docker(spec("sh", "-c", "trap '' TERM; setsid sleep 600 & echo up; sleep 600"))
    await read_until(process, b"up")
    await asyncio.wait_for(process.stop(grace), SECONDS)
    await process.stop(grace)
    assert engine.containers(all=True, filters={"label": f"a2a-serve.owner={spec().owner}"}) == []


async def test_an_agent_that_listens_ends_by_itself(spec: MakeSpec, docker: Start) -> None:
    process = await docker(spec("sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done"))
    await read_until(process, b"up")
    await process.stop(SECONDS)
    assert (await process.wait()).code == 5


@pytest.fixture
def engine() -> Iterator[APIClient]:
    api = connect()
    try:
        yield api
    finally:
        api.close()


@pytest.mark.req("S8")
async def test_reap_removes_what_another_boot_left_and_nothing_else(spec: MakeSpec, docker: Start) -> None:
    old = await docker(spec("cat"))
    current = await docker(spec("cat", boot="boot-2"))
    other = await docker(spec("cat", owner=spec().owner + "-another-directory"))
    sandbox = DockerSandbox()
    try:
        assert await sandbox.reap(spec().owner, "boot-2") == 1
        assert await read_all(old) == b""
        for left in (current, other):
            await left.write(b"still here")
            assert await read_until(left, b"here") == b"still here"
        assert await sandbox.reap(spec().owner, "boot-2") == 0
    finally:
        await sandbox.close()


@pytest.mark.req("S8", "R1")
async def test_a_container_ends_with_a_server_that_was_killed(spec: MakeSpec, engine: APIClient, project: Path) -> None:
    """Even one whose agent ignores the end of its input."""
    mine = spec("sh", "-c", "trap '' TERM HUP; echo up; while :; do sleep 1; done")
    server = f"""if True:
        import asyncio
        from pathlib import Path, PosixPath
        from a2a_serve.sandbox import SandboxSpec, Limits
        from a2a_serve.sandbox.docker import DockerSandbox, connect, engine_url, unreachable
        async def main():
            process = await DockerSandbox(Path("/nonexistent-home")).start({mine!r})
            print((await process.read(10)).decode(), flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
    """
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", server, stdout=asyncio.subprocess.PIPE)
    assert killed.stdout
    assert await asyncio.wait_for(killed.stdout.readline(), SECONDS) == b"up\n"
    killed.send_signal(signal.SIGKILL)
    await killed.wait()
    sandbox = DockerSandbox()
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                if not engine.containers(filters={"label": f"a2a-serve.owner={mine.owner}"}):
                    break
                await asyncio.sleep(0.1)
    finally:
        assert await sandbox.reap(mine.owner, "boot-2") == 1
        await sandbox.close()


@asynccontextmanager
async def answering(door: Path) -> AsyncIterator[list[bytes]]:
    """An HTTP server on the door's socket, as this server is one; gives the requests that came."""
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\nConnection: close\r\n\r\n" + b"y" * 3_000_000)
        await writer.drain()
        writer.close()

    async with AsyncExitStack() as closing:
        server = await asyncio.start_unix_server(answer, door / "a2a.sock")
        closing.push_async_callback(server.wait_closed)
        closing.callback(server.close)
        if os.geteuid() == 0:
            os.chown(door / "a2a.sock", 1234, 1234)
        yield seen


@pytest.mark.req("S4", "C1")
async def test_the_door_is_the_only_way_out(spec: MakeSpec, docker: Start, door: Path) -> None:
    async with answering(door) as seen:
        said = await shell(
            docker,
            spec,
            """
            for n in 1 2 3; do curl -sS http://a2a/k3/reviewer | wc -c & done; wait
            curl -sS --max-time 5 http://a2a/ -o /dev/null -w '%{http_code}\\n'
            curl -s --max-time 2 http://198.51.100.1/ || echo "no way to others"
            touch /run/a2a/x; ls -A /run/a2a | tr '\\n' ' '
            """,
        )
    assert said.splitlines()[:5] == ["3000000"] * 3 + ["200", "no way to others"], said
    assert b"GET /k3/reviewer HTTP/1.1\r\nHost: a2a\r\n" in seen[0]
    assert "Read-only file system" in said
    assert said.splitlines()[-1] == "a2a.sock group lease passwd "


async def test_a_door_without_a_server_answers_with_a_closed_connection(spec: MakeSpec, docker: Start) -> None:
    said = await shell(docker, spec, "curl -sS http://a2a/; echo; cat /dev/null")
    assert "Empty reply" in said or "reset" in said


async def test_an_open_network_is_there_only_when_asked_for(spec: MakeSpec, docker: Start) -> None:
    assert "eth0" in await shell(docker, spec, "ls /sys/class/net", network="open")
    assert "open" in " ".join(DockerSandbox().warnings(spec(network="open")))


async def test_the_official_client_is_in_the_image(spec: MakeSpec, docker: Start) -> None:
    said = await shell(docker, spec, "a2a --help; git --version; rg --version; curl --version; ps --version")
    for words in ("Agent-to-Agent protocol", "git version", "ripgrep", "libcurl", "procps"):
        assert words in said


@pytest.mark.req("S9")
async def test_a_missing_image_is_told_with_the_command(spec: MakeSpec, docker: Start) -> None:
    with pytest.raises(ImageMissing, match="a2a-serve/demo:none is not there") as missing:
        await docker(spec("cat", image="a2a-serve/demo:none"))
    assert missing.value.hint == "Build it: a2a-serve image build demo"


async def test_a_folder_that_the_engine_does_not_see(spec: MakeSpec, docker: Start, tmp_path: Path) -> None:
    mine = spec("cat")
    gone = replace(mine, home=tmp_path / "gone")
    with pytest.raises((SandboxUnavailable, FileNotFoundError)):
        await docker(gone)


@pytest.mark.req("S9", "S10")
@pytest.mark.parametrize(
    ("url", "words", "hint"),
    [
        ("unix:///nonexistent/docker.sock", "no such file or directory", "Start Docker"),
        ("tcp://127.0.0.1:1", "connection refused", "Start Docker"),
        ("nonsense://x", "it does not answer", "Start Docker"),
    ],
)
async def test_an_engine_that_is_not_there(
    spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, url: str, words: str, hint: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", url)
    sandbox = DockerSandbox(Path("/nonexistent-home"))
    with pytest.raises(SandboxUnavailable) as away:
        await sandbox.start(spec("cat"))
    assert away.value.sentence == f"Docker is not reachable at {url} ({words})."
    assert hint in away.value.hint
    with pytest.raises(SandboxUnavailable):
        await sandbox.reap("x", "y")
    monkeypatch.delenv("DOCKER_HOST")
    process = await sandbox.start(spec("echo", "back"))
    assert isinstance(process, AttachedProcess)
    assert await read_all(process) == b"back\n"
    await process.stop(0)
    await sandbox.close()


def test_no_right_to_use_the_engine_is_a_hint_of_its_own() -> None:
    wrapped = RuntimeError("wrapped", PermissionError(13, "Permission denied"))
    error = unreachable("unix:///var/run/docker.sock", wrapped)
    assert str(error) == (
        "Docker is not reachable at unix:///var/run/docker.sock (permission denied). "
        "Add yourself to the docker group, or start with --sandbox local."
    )


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"DOCKER_HOST": "tcp://10.0.0.1:2375"}, "tcp://10.0.0.1:2375"),
        ({"XDG_RUNTIME_DIR": "/nonexistent"}, "unix:///var/run/docker.sock"),
    ],
)
def test_where_the_engine_is(environment: dict[str, str], url: str) -> None:
    assert engine_url(environment) == url
