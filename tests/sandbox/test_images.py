"""The real images on the real engine; what is built here is tiny and named apart."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient, errors
from sandbox.conftest import MakeSpec, Start
from sandbox.reading import read_until

from a2a_serve import __version__
from a2a_serve.core.errors import ImageMissing, SandboxUnavailable, UsageError
from a2a_serve.sandbox import images, recipes
from a2a_serve.sandbox.docker import connect

MARKER = b"a2a-serve build configuration"
BUILT = ("demo", "opencode", "claude")


@pytest.fixture
def engine() -> Iterator[APIClient]:
    api = connect()
    try:
        yield api
    finally:
        api.close()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: APIClient) -> Iterator[Path]:
    """Recipes of two small images under names of their own, removed afterwards."""
    root, space = tmp_path / "images", f"a2a-serve-test-{os.getpid()}"
    for name, text in {
        "runtime/Dockerfile": "FROM scratch\nCOPY file /file\n",
        "runtime/file": "one",
        "runtime/a2a-cli/go.mod": "require github.com/a2aproject/a2a-go/v2 v2.4.0",
        "demo/Dockerfile": "ARG RUNTIME\nFROM ${RUNTIME}\nCOPY demo.py /demo.py\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(recipes, "folder", lambda: root)
    monkeypatch.setattr(images, "tag", lambda kind: f"{space}/{kind}:1")
    monkeypatch.setattr(images, "KIND", f"{space}.kind")
    monkeypatch.setattr(images, "STAGE", f"{space}.stage")
    monkeypatch.setattr(images, "_base", lambda api, progress: "scratch")
    yield root
    while left := engine.images(filters={"label": f"{space}.kind"}, quiet=True):
        for image in left:
            with contextlib.suppress(errors.APIError):  # another stands on it: in the next round
                engine.remove_image(image, force=True)


@pytest.mark.docker
@pytest.mark.req("S7", "H8")
async def test_what_is_missing_or_stale_is_built_and_the_rest_left_alone(tiny: Path, engine: APIClient) -> None:
    said: list[str] = []
    tag = await images.ensure("demo", progress=said.append)
    assert tag == images.tag("demo")
    assert [line for line in said if line.startswith("Building")] == [
        f"Building the image {images.tag('runtime')}",
        f"Building the image {tag}",
    ]
    first = engine.images(tag)[0]["Id"]
    said.clear()
    await images.ensure("demo", progress=said.append)
    assert said == []
    assert engine.images(tag)[0]["Id"] == first

    (tiny / "runtime/file").write_text("two")
    listed = {image.kind: image for image in await images.list_images()}
    assert not listed["demo"].current
    await images.ensure("demo", progress=said.append)
    assert engine.images(tag)[0]["Id"] != first
    listed = {image.kind: image for image in await images.list_images()}
    assert listed["demo"].current
    assert listed["demo"].cli == "v2.4.0"

    said.clear()
    await images.build("demo", progress=said.append)
    assert said[0] == f"Building the image {tag}"


@pytest.mark.docker
@pytest.mark.req("S7")
async def test_prune_removes_what_no_longer_fits(tiny: Path) -> None:
    await images.ensure("demo", progress=lambda line: None)
    assert await images.prune() == []
    (tiny / "demo/Dockerfile").write_text("ARG RUNTIME\nFROM ${RUNTIME}\n")
    assert await images.prune() == [images.tag("demo")]
    assert [image.kind for image in await images.list_images()] == ["runtime"]


@pytest.mark.docker
async def test_a_build_that_fails_shows_why(tiny: Path) -> None:
    (tiny / "demo/Dockerfile").write_text(f"FROM a2a-serve/demo:{__version__}\nRUN echo the reason; exit 3\n")
    said: list[str] = []
    with pytest.raises(ImageMissing, match="could not be built") as failed:
        await images.ensure("demo", progress=said.append)
    assert "the reason" in said
    assert failed.value.hint.endswith("a2a-serve image build demo")


async def test_a_kind_without_an_image_is_named_with_those_that_have_one() -> None:
    with pytest.raises(UsageError, match="'emacs'") as unknown:
        await images.ensure("emacs", progress=print)
    assert "demo, opencode, claude" in unknown.value.hint
    with pytest.raises(UsageError):
        await images.build("runtime", progress=print)


@pytest.mark.req("S9")
async def test_an_engine_that_is_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    for ask in (images.ensure("demo", progress=print), images.list_images(), images.prune()):
        with pytest.raises(SandboxUnavailable, match="Docker is not reachable at unix:///nonexistent"):
            await ask


@pytest.mark.docker
def test_no_registry_and_no_packages_is_told(engine: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "BASE_NAME", "a2a-serve-no-such-base")
    monkeypatch.setattr(images, "REGISTRY_IMAGE", "localhost:1/none:none")
    monkeypatch.setenv("PATH", "/nonexistent")
    before = time.monotonic()
    with pytest.raises(ImageMissing, match="mmdebstrap is not installed") as missing:
        images._base(engine, print)
    assert "apt-get install mmdebstrap" in missing.value.hint
    assert time.monotonic() - before < images.REGISTRY_SECONDS + 5


def test_the_base_carries_the_hosts_client_settings_marked(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://canary-index/\n")
    settings = {**os.environ, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "GOPROXY": "http://canary-go"}
    script = ["bash", str(recipes.folder() / "base.sh"), "overlay"]
    made = subprocess.run(script, env=settings, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        names = [name for name in tar.getnames() if name.startswith("./etc/") and tar.getmember(name).isfile()]
        content = {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    assert {"./etc/npmrc", "./etc/pip.conf", "./etc/go.env", "./etc/apt/apt.conf.d/90host"} <= set(content)
    assert b"index-url = http://canary-index/" in content["./etc/pip.conf"]
    assert b"GOPROXY=http://canary-go" in content["./etc/go.env"]
    assert all(MARKER in text for name, text in content.items() if "auth.conf.d" not in name)


@pytest.mark.docker
@pytest.mark.req("S7")
def test_nothing_of_the_base_is_in_a_final_image_but_certificates(engine: APIClient) -> None:
    """The marker that base.sh puts into each client setting is the canary: in no layer, setting or history."""
    tags = [images.tag(kind) for kind in BUILT]
    for tag in tags:
        image = engine.inspect_image(tag)  # type: ignore[no-untyped-call]
        history: list[dict[str, object]] = engine.history(tag)  # type: ignore[no-untyped-call]
        about = str(image["Config"]) + str(history)
        assert not [word for word in ("NPM_CONFIG", "PIP_CONFIG", "GOENV", 'base"') if word in about]
    names: set[str] = set()
    for tag in tags[1:]:  # they hold the first one's layers
        marked, inside = _search(engine, tag, MARKER)
        assert marked == []
        names |= inside
    assert [name for name in names if "certificates" in name]
    forbidden = ("npmrc", "pip.conf", "go.env", ".package-lock.json", "90host")
    assert [name for name in names if name.endswith(forbidden) and "/node_modules/" not in name] == []
    assert [name for name in names if name.startswith(("etc/apt/sources.list", "etc/apt/auth.conf.d/"))] == [
        "etc/apt/sources.list.d"
    ]


@pytest.mark.docker
def test_the_canary_is_in_the_base_so_it_can_be_found(engine: APIClient) -> None:
    base = images._base(engine, print)
    container = engine.create_container(base, ["true"])
    try:
        for path in ("/etc/npmrc", "/etc/pip.conf"):
            stream, _ = engine.get_archive(container["Id"], path)
            assert MARKER in b"".join(stream), path
    finally:
        engine.remove_container(container["Id"])


def _search(engine: APIClient, tag: str, words: bytes) -> tuple[list[str], set[str]]:
    """Which files of which layers hold the words, and the names of all files."""
    found, names = [], set()
    saved = io.BufferedReader(_Stream(engine.get_image(tag)), 1 << 20)
    with tarfile.open(fileobj=saved, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            if not member.name.endswith(("layer.tar",)) and not member.name.startswith("blobs/"):
                found += [member.name] if words in content.read() else []
                continue
            with tarfile.open(fileobj=content, mode="r|") as layer:
                for file in layer:
                    names.add(file.name)
                    inner = layer.extractfile(file) if file.isfile() and file.size < 1 << 22 else None
                    found += [file.name] if inner and words in inner.read() else []
    while saved.read(1 << 20):  # what comes after the archive's end
        continue
    return found, names


class _Stream(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = iter(chunks), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or memoryview(next(self._chunks, b""))
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


@pytest.mark.docker
@pytest.mark.req("S7", "Q1")
@pytest.mark.parametrize(
    ("kind", "managed"),
    [("opencode", "/etc/opencode/opencode.json"), ("claude", "/etc/claude-code/managed-settings.json")],
)
async def test_managed_settings_are_roots(spec: MakeSpec, docker: Start, kind: str, managed: str) -> None:
    process = await docker(spec("sh", "-c", f"stat -c '%U %a' {managed}; echo x >> {managed}", image=images.tag(kind)))
    assert await read_until(process, b"\n") == b"root 644\n"
    assert await process.read(10) == b""
    assert "Read-only file system" in process.stderr_tail() or "Permission denied" in process.stderr_tail()


@pytest.mark.docker
@pytest.mark.req("S7")
@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("demo", ("python3", "/opt/a2a-serve/demo.py")),
        ("opencode", ("opencode", "acp")),
        ("claude", ("claude-agent-acp",)),
    ],
)
async def test_each_agent_answers_in_its_image(
    spec: MakeSpec, docker: Start, kind: str, command: tuple[str, ...]
) -> None:
    process = await docker(spec(*command, image=images.tag(kind)))
    await process.write(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}\n'
    )
    assert b'"protocolVersion":1' in (await asyncio.wait_for(read_until(process, b"\n"), 20)).replace(b" ", b"")
