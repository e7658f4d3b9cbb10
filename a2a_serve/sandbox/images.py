"""The sandbox images: found, built where they are missing or stale, listed, pruned (requirement S7).

An image is `a2a-serve/<kind>:<package version>`. Its labels say from which files it was made, so one that does not
fit this package is noticed. All of them stand on one base, `a2a-serve-base`: one that is here, else a registry's
Debian, else one made from this host's Debian packages.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import docker
from docker import errors

from a2a_serve import __version__
from a2a_serve.core.errors import ImageMissing, UsageError
from a2a_serve.sandbox.docker import FAILURES, connect, engine_url, explain
from a2a_serve.sandbox.recipes import BASE, RECIPES, Recipe, cli_version, context, digest, folder, in_order

Progress = Callable[[str], None]

BASE_NAME = "a2a-serve-base"
SUITE = "bookworm"
REGISTRY_IMAGE = f"debian:{SUITE}-slim"
KIND, VERSION, DIGEST, CLI, STAGE = (f"a2a-serve.{word}" for word in ("kind", "version", "digest", "a2a-cli", "stage"))
"""Labels. STAGE marks what only building needs."""
UNTAGGED = "<none>:<none>"
BUILD_SECONDS = 900
REGISTRY_SECONDS = 10
BASE_SETTINGS = [
    f'LABEL {STAGE}="base"',
    "ENV NPM_CONFIG_GLOBALCONFIG=/etc/npmrc PIP_CONFIG_FILE=/etc/pip.conf GOENV=/etc/go.env "
    "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt",
    'CMD ["bash"]',
]
FROM_REGISTRY = f"""FROM {REGISTRY_IMAGE}
COPY etc /etc
COPY usr /usr
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && update-ca-certificates \\
 && rm -rf /var/lib/apt/lists/*
"""


@dataclass(frozen=True, slots=True)
class Image:
    """An image on this engine. `size` in bytes; `current`: made from exactly what this package says."""

    kind: str
    tag: str
    version: str
    cli: str
    size: int
    created: int
    current: bool


def kinds() -> list[str]:
    """The agent kinds that have an image."""
    return [recipe.name for recipe in RECIPES.values() if recipe.is_agent]


def tag(kind: str) -> str:
    return f"a2a-serve/{kind}:{__version__}"


async def ensure(kind: str, *, progress: Progress) -> str:
    """The tag of the kind's image, built first when it is missing or stale. `progress` gets plain lines.

    Raises UsageError for a kind that has no image, SandboxUnavailable, and ImageMissing when it cannot be built.
    """
    return await _in_thread(kind, progress, again=False)


async def build(kind: str, *, progress: Progress) -> str:
    """As `ensure`, but the kind's own image is built in any case."""
    return await _in_thread(kind, progress, again=True)


async def list_images() -> list[Image]:
    """Those of this project on the engine, newest first. Raises SandboxUnavailable."""
    return await asyncio.to_thread(_list)


async def prune() -> list[str]:
    """Remove images of other versions, stale ones, and what only building needed; tells what was removed.

    What a container still uses stays. Raises SandboxUnavailable.
    """
    return await asyncio.to_thread(_prune)


async def _in_thread(kind: str, progress: Progress, *, again: bool) -> str:
    if kind not in kinds():
        raise UsageError(f"There is no image for the agent kind {kind!r}.", f"Choose one of {', '.join(kinds())}.")
    loop = asyncio.get_running_loop()

    def tell(line: str) -> None:
        loop.call_soon_threadsafe(progress, line)

    return await asyncio.to_thread(_ensure, kind, tell, again)


def _ensure(kind: str, progress: Progress, again: bool) -> str:
    api = connect(BUILD_SECONDS)
    try:
        for recipe in _to_build(api, kind, again):
            _build(api, recipe, progress)
    except FAILURES as error:
        raise explain(error, engine_url(os.environ)) from error
    finally:
        api.close()
    return tag(kind)


def _to_build(api: docker.APIClient, kind: str, again: bool) -> list[Recipe]:
    """Nothing when the kind's own image is right: what it was built upon may be gone then."""
    if not again and _is_current(api, kind):
        return []
    *parents, own = in_order(kind)
    return [*(each for each in parents if not _is_current(api, each.name)), own]


def _labels(name: str) -> dict[str, str]:
    return {KIND: name, VERSION: __version__, DIGEST: digest(name), CLI: cli_version()}


def _is_current(api: docker.APIClient, name: str) -> bool:
    try:
        image: dict[str, Any] = api.inspect_image(tag(name))  # type: ignore[no-untyped-call]
    except errors.ImageNotFound:
        return False
    found = image["Config"]["Labels"] or {}
    return {key: found.get(key) for key in _labels(name)} == _labels(name)


def _build(api: docker.APIClient, recipe: Recipe, progress: Progress) -> None:
    progress(f"Building the image {tag(recipe.name)}")
    arguments = {
        name: _base(api, progress) if parent == BASE else tag(parent) for name, parent in recipe.parents.items()
    }
    _run_build(api, context(recipe), tag(recipe.name), progress, arguments, _labels(recipe.name))


def _run_build(
    api: docker.APIClient,
    archive: bytes,
    name: str,
    progress: Progress,
    arguments: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> None:
    """By the host's network: an engine's bridge often has too large packets for a VPN's, and fetches nothing."""
    output = api.build(
        fileobj=io.BytesIO(archive),
        custom_context=True,
        tag=name,
        buildargs=arguments,
        labels=labels,
        network_mode="host",
        rm=True,
        forcerm=True,
        decode=True,
    )
    _follow(output, name, progress)


def _follow(output: Iterable[dict[str, Any]], name: str, progress: Progress) -> None:
    """Tell of each step; the engine reports a failed build as the last item of its answer, not as an error."""
    said, failure = deque[str](maxlen=15), ""
    for item in output:  # to its end, or the connection stays open
        failure = failure or str(item.get("error", "")).strip()
        for line in str(item.get("stream", "")).splitlines():
            said.append(line)
            if line.startswith("Step "):
                progress(f"  {line[:100]}")
    if failure:
        for line in said:
            progress(line)
        raise ImageMissing(
            f"The image {name} could not be built: {failure[:300]}.",
            f"The lines above say why. Try again: a2a-serve image build {name.partition(':')[0].split('/')[-1]}",
        )


def _base(api: docker.APIClient, progress: Progress) -> str:
    """The base to build upon; raises ImageMissing where none can be had."""
    here = [name for image in api.images(BASE_NAME) for name in image["RepoTags"] or ()]
    if here:
        return str(here[0])
    if _registry_answers(api):
        return _base_from_registry(api, progress)
    return _base_from_packages(api, progress)


def _registry_answers(api: docker.APIClient) -> bool:
    if api.images(REGISTRY_IMAGE):
        return True
    quick = connect(REGISTRY_SECONDS)
    try:
        quick.inspect_distribution(REGISTRY_IMAGE)  # type: ignore[no-untyped-call]
    except FAILURES:
        return False
    finally:
        quick.close()
    return True


def _base_from_registry(api: docker.APIClient, progress: Progress) -> str:
    progress(f"Making the base image from {REGISTRY_IMAGE}")
    done = subprocess.run(_script("overlay"), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise ImageMissing("The host's settings for the base image could not be read.", "The lines above say why.")
    archive = io.BytesIO(done.stdout)
    with tarfile.open(fileobj=archive, mode="a") as tar:
        dockerfile = "\n".join([FROM_REGISTRY, *BASE_SETTINGS]).encode()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(dockerfile)
        tar.addfile(entry, io.BytesIO(dockerfile))
    name = f"{BASE_NAME}:{SUITE}"
    _run_build(api, archive.getvalue(), name, progress)
    return name


def _base_from_packages(api: docker.APIClient, progress: Progress) -> str:
    if not shutil.which("mmdebstrap"):
        raise ImageMissing(
            "There is no base image: no image registry answers, and mmdebstrap is not installed.",
            f"Install it (apt-get install mmdebstrap), or load a Debian image as {BASE_NAME}.",
        )
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", SUITE)
    progress(f"Making the base image from this machine's {suite} packages (about a minute)")
    with subprocess.Popen(_script("root", suite), stdout=subprocess.PIPE) as script:
        answer = api.import_image_from_stream(script.stdout, changes=BASE_SETTINGS)
    made = json.loads(answer.splitlines()[-1]).get("status", "")
    if script.returncode or not made.startswith("sha256:"):
        raise ImageMissing("The base image could not be made from packages.", "The lines above say why.")
    api.tag(made, BASE_NAME, suite)
    return f"{BASE_NAME}:{suite}"


def _script(*arguments: str) -> list[str]:
    return ["bash", str(folder() / "base.sh"), *arguments]


def _list() -> list[Image]:
    api = connect()
    try:
        ours = [image for image in api.images() if KIND in (image["Labels"] or {})]
        found = [_image(image, name) for image in ours for name in image["RepoTags"] or () if name != UNTAGGED]
        return sorted(found, key=lambda each: each.created, reverse=True)
    except FAILURES as error:
        raise explain(error, engine_url(os.environ)) from error
    finally:
        api.close()


def _image(image: dict[str, Any], name: str) -> Image:
    labels = image["Labels"]
    kind = labels[KIND]
    current = kind in RECIPES and labels == {**labels, **_labels(kind)} and name == tag(kind)
    return Image(kind, name, labels.get(VERSION, ""), labels.get(CLI, ""), image["Size"], image["Created"], current)


def _prune() -> list[str]:
    api = connect(BUILD_SECONDS)
    try:
        stale = [each.tag for each in _list() if not each.current]
        nameless = [api.images(filters={"label": label, "dangling": True}, quiet=True) for label in (KIND, STAGE)]
        return [name for name in (*stale, *nameless[0], *nameless[1]) if _remove(api, name)]
    except FAILURES as error:
        raise explain(error, engine_url(os.environ)) from error
    finally:
        api.close()


def _remove(api: docker.APIClient, name: str) -> bool:
    try:
        api.remove_image(name)
    except errors.APIError as error:
        if error.status_code in (404, 409):  # gone with another, or a container uses it
            return False
        raise
    return True
