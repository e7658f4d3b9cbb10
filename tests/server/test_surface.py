"""What callers see of a file in an answer (requirement T3)."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import MessageToDict

from a2a_serve.core.model import File
from a2a_serve.server.surface import file_artifact


def test_json_comes_as_data() -> None:
    artifact = file_artifact(File("a.json", "application/json", b'{"key": "value", "count": 42}'))

    assert artifact.artifact_id == artifact.name == "file:a.json"
    assert MessageToDict(artifact.parts[0]) == {
        "data": {"key": "value", "count": 42},
        "filename": "a.json",
        "mediaType": "application/json",
    }


@pytest.mark.parametrize(
    "data", [b"{", b"", b"NaN", b"\xff", b"[" * 2000, b"[" * 900 + b"]" * 900], ids=lambda data: repr(data[:8])
)
def test_what_only_says_it_is_json_stays_bytes(data: bytes) -> None:
    part = file_artifact(File("a.json", "application/json", data)).parts[0]

    assert (part.WhichOneof("content"), part.raw, part.media_type) == ("raw", data, "application/json")


def test_bytes_and_links() -> None:
    part = file_artifact(File("a.png", "image/png", b"\0")).parts[0]
    assert (part.raw, part.filename, part.media_type) == (b"\0", "a.png", "image/png")

    part = file_artifact(File("a.json", "application/json", url="https://a.example/a.json")).parts[0]
    assert (part.url, part.filename, part.media_type) == ("https://a.example/a.json", "a.json", "application/json")
