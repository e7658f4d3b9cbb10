"""Story: what can be wrong at a start. One sentence, the next step, and the exit code that the reference names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from acceptance.project import MakeProject, Project, Ran, opened

NOBODY = 65534


def must_refuse(ran: Ran, code: int, *words: str) -> None:
    """One line on stderr with these words, nothing on stdout, no traceback."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert ran.err.startswith("Error: ")
    assert len(ran.err.strip().splitlines()) == 1, ran.err
    assert ran.err.count(". ") >= 1, f"no next step: {ran.err}"
    for each in words:
        assert each in ran.err, ran.err


@pytest.mark.req("H4", "H9")
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("listen:\n  port: 41000\n  prot: 5\n", 3, ["listen.prot", "port"]),
        ("agent:\n  kind: demo\nlisten:\n  port: many\n", 4, ["listen.port"]),
        ("listen:\n  port: 70000\n", 2, ["listen.port"]),
        ("listen:\n  port: true\n", 2, ["listen.port"]),
        ("\n\nagnet: {}\n", 3, ["agnet", "agent"]),
        ("sandbox:\n  memory: lots\n", 2, ["sandbox.memory", "512m"]),
        ("listen:\n  host: 0.0.0.0\n", 2, ["listen.host", "127.0.0.1"]),
        ("listen:\n  port: [1\n", 3, ["YAML"]),
        ("listen:\n\tport: 1\n", 2, ["YAML"]),
        ("listen:\n  port: 1\n  port: 2\n", 3, ["YAML"]),
        ("listen: 5\n", 1, ["listen"]),
        ("- 1\n", 1, ["section"]),
        ("card:\n  name: ${NO_SUCH_VARIABLE}\n", 2, ["card.name", "NO_SUCH_VARIABLE"]),
        ("agent:\n  kind: hal9000\n", None, ["hal9000", "demo"]),
        ("sandbox:\n  kind: podman\n", 2, ["sandbox.kind", "docker"]),
    ],
)
async def test_a_bad_config_names_file_line_and_key(
    plain: Project, text: str, line: int | None, words: list[str]
) -> None:
    config = plain.root / ".a2a/config.yaml"
    config.parent.mkdir()
    config.write_text(text, encoding="utf-8")
    place = f"{config}:{line}:" if line else "agent kind"
    must_refuse(await plain.run("start", "--grpc-port", "0"), 78, place, *words)
    assert config.read_text(encoding="utf-8") == text


@pytest.mark.req("H4")
async def test_a_flag_does_not_hide_that_the_file_is_wrong(plain: Project) -> None:
    config = plain.root / ".a2a/config.yaml"
    config.parent.mkdir()
    config.write_text("\nlisten: 5\n", encoding="utf-8")
    must_refuse(await plain.run("start", "--port", "0"), 78, f"{config}:2:", "listen")
    must_refuse(await plain.run("start", "--detach", A2A_SERVE_LISTEN__PORT="0"), 78, f"{config}:2:", "listen")


@pytest.mark.req("H4")
async def test_a_bad_variable_or_flag_names_itself(plain: Project) -> None:
    must_refuse(await plain.run("start", A2A_SERVE_LISTEN__PORT="many"), 78, "A2A_SERVE_LISTEN__PORT")
    must_refuse(await plain.run("start", A2A_SERVE_LISTEN__PROT="1"), 78, "A2A_SERVE_LISTEN__PROT")
    must_refuse(await plain.run("start", "--agent", "hal9000"), 78, "hal9000", "demo")
    must_refuse(await plain.run("start", "--grpc-port", "many"), 78, "--grpc-port")
    for words in (["--port", "70000"], ["--sandbox", "podman"], ["--no-such"], ["a", "b"]):
        ran = await plain.run("start", *words)
        assert ran.code == 64, ran
    must_refuse(await plain.run("start", "no-such-folder"), 64, "no-such-folder")
    assert not (plain.root / ".a2a").exists()


@pytest.mark.docker
@pytest.mark.req("S9", "H9")
@pytest.mark.parametrize("how", [[], ["--detach"]])
async def test_an_engine_that_is_not_there(contained: Project, how: list[str]) -> None:
    nothing = f"unix://{contained.home}/docker.sock"
    ran = await contained.run(*contained.start_words(), *how, DOCKER_HOST=nothing)
    assert ran.code == 69
    error = ran.err.splitlines()[-1]
    assert nothing in error
    assert "--sandbox local" in error
    assert (await contained.status())["state"] == "stopped"
    assert (await contained.run("doctor", DOCKER_HOST=nothing)).code != 0


@pytest.mark.docker
@pytest.mark.req("S7", "S9", "H9")
async def test_an_image_that_is_not_there(contained: Project) -> None:
    """Of the owner's own choice: nothing of ours can build it. The server stays up and says so to who asks."""
    await contained.start(A2A_SERVE_AGENT__IMAGE="no-such-image:1")
    ran = await contained.must("send", "say hi")
    assert "no-such-image:1 is not there" in ran.err
    assert "State: failed" in ran.err


@pytest.mark.docker
@pytest.mark.req("S3", "H9")
async def test_a_home_directory_is_no_workspace(contained: Project) -> None:
    ran = await contained.run(*contained.start_words(str(contained.home)), "--detach")
    assert ran.code == 78
    assert f"{contained.home} cannot be a workspace: it is a home directory" in ran.err.splitlines()[-1]
    assert not (contained.home / ".a2a/config.yaml").exists()


@pytest.mark.docker
@pytest.mark.req("S3", "H9")
@pytest.mark.parametrize("folder", ["/", "/etc", "/tmp", "/var/lib/docker"])
async def test_a_system_folder_is_no_workspace(contained: Project, folder: str) -> None:
    ran = await contained.run("start", folder, "--sandbox", "docker", "--port", "0", "--grpc-port", "off")
    assert ran.code == 78, ran
    error = ran.err.splitlines()[-1]
    assert f"{folder} cannot be a workspace" in error
    assert "project folder" in error
    assert not (Path(folder) / ".a2a").exists()


@pytest.fixture
async def unprivileged() -> AsyncIterator[Project]:
    """The folder of a user whom modes do stop: of an ordinary one where root runs the tests."""
    with tempfile.TemporaryDirectory(prefix="a2as-") as place:
        Path(place).chmod(0o755)
        async with httpx.AsyncClient() as http, opened(Path(place) / "project", "local", http) as made:
            if os.geteuid() == 0:
                os.chown(made.home, NOBODY, NOBODY)
                made.prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
            yield made
            made.prefix = ()


@pytest.mark.req("H9")
async def test_a_folder_that_cannot_be_written(unprivileged: Project) -> None:
    unprivileged.root.chmod(0o555)
    for how in ([], ["--detach"]):
        ran = await unprivileged.run(*unprivileged.start_words(), *how)
        must_refuse(ran, 73, str(unprivileged.root / ".a2a"), "Check who owns the folder")


@pytest.mark.req("H9")
async def test_a_folder_that_may_not_be_entered(unprivileged: Project) -> None:
    unprivileged.root.chmod(0o000)
    ran = await unprivileged.run(*unprivileged.start_words(str(unprivileged.root)), cwd=unprivileged.home)
    unprivileged.root.chmod(0o755)
    must_refuse(ran, 78, str(unprivileged.root), "Check who owns")


@pytest.mark.req("H9")
async def test_a_folder_below_one_that_may_not_be_entered(unprivileged: Project) -> None:
    inner = unprivileged.root / "inner"
    inner.mkdir()
    unprivileged.root.chmod(0o000)
    ran = await unprivileged.run(*unprivileged.start_words(str(inner)), cwd=unprivileged.home)
    unprivileged.root.chmod(0o755)
    must_refuse(ran, 64, str(inner), "Name a folder of your own")


@pytest.mark.req("H9")
async def test_a_state_that_is_anothers(unprivileged: Project) -> None:
    """Left by root, where root runs the tests; else made unreadable."""
    (unprivileged.root / ".a2a/state").mkdir(parents=True)
    (unprivileged.root / ".a2a/state").chmod(0o700 if os.geteuid() == 0 else 0o000)
    for words in (unprivileged.start_words(), [*unprivileged.start_words(), "--detach"]):
        must_refuse(await unprivileged.run(*words), 73, ".a2a", "Check who owns")
    ran = await unprivileged.run("questions")
    assert (ran.code, "not yours" in ran.err) == (4, True), ran
    (unprivileged.root / ".a2a/state").chmod(0o700)


@pytest.mark.req("S6")
async def test_an_agent_command_that_is_not_there(plain: Project) -> None:
    await plain.start(A2A_SERVE_AGENT__COMMAND="no-such-agent --acp")
    ran = await plain.must("send", "hi")
    assert "no-such-agent cannot be started" in ran.err
    assert "State: failed" in ran.err
    assert (await plain.status())["state"] == "running"


@pytest.mark.req("H9")
async def test_clients_have_the_codes_of_clients(plain: Project) -> None:
    status = await plain.start()
    url = status["card_url"]
    for words, code in (
        (["send"], 2),
        (["send", "--no-such", "x"], 2),
        (["send", "--url", "http://127.0.0.1:9", "x"], 3),
        (["send", "--task-id", "0" * 32], 1),
        (["send", "--timeout", "0.3", "sleep 30"], 5),
        (["send", "fail on purpose"], 0),
        (["answer", "x"], 2),
    ):
        ran = await plain.run(*words)
        assert ran.code == code, (words, ran)
        assert "Traceback" not in ran.err
    stranger = await plain.run("send", "--url", url, "x", HOME=str(plain.root), XDG_STATE_HOME=str(plain.root))
    assert stranger.code == 4, stranger


async def test_a_state_home_that_cannot_be_written(folders: MakeProject) -> None:
    made = await folders("project", "local", XDG_STATE_HOME="/proc/no")
    ran = await made.run(*made.start_words(), "--detach")
    assert ran.code == 73
    assert ran.err.splitlines()[-1].startswith("Error: Cannot write /proc/no/")
