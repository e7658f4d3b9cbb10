"""usage: python scripts/image_file.py REPOSITORY PATH TARGET: copy one file out of a local image, newest tag first."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import docker


def read_file(repository: str, path: str) -> bytes:
    """The bytes of `path` in the newest local image of `repository`. Raises LookupError when there is none."""
    engine = docker.from_env()
    found = engine.images.list(repository)
    if not found:
        raise LookupError(f"There is no image of {repository} here. Build it: make images")
    newest = max(found, key=lambda image: str(image.attrs["Created"]))
    container = engine.containers.create(newest, ["true"])
    try:
        chunks, _ = container.get_archive(path)
        return _unpack(b"".join(chunks), Path(path).name)
    finally:
        container.remove()


def _unpack(archive: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        file = members.extractfile(name)
        if file is None:
            raise LookupError(f"{name} in the image is not a file.")
        return file.read()


def main(repository: str, path: str, target: str) -> None:
    file = Path(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    part.write_bytes(read_file(repository, path))
    part.chmod(0o755)
    part.rename(file)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except LookupError as error:
        sys.exit(str(error))
