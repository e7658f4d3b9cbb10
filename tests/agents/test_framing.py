"""Bounds of the line protocol: an agent that breaks one ends, an honest one never notices them."""

from __future__ import annotations

from collections.abc import Iterable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_serve.agents.framing import Lines, ProtocolViolation


def lines_of(chunks: Iterable[bytes], **bounds: int) -> Lines:
    waiting = iter(chunks)

    async def read(limit: int) -> bytes:
        return next(waiting, b"")

    return Lines(read, **bounds)


async def everything(lines: Lines) -> list[dict[str, object]]:
    found = []
    while (message := await lines.next()) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize(
    ("chunks", "wanted"),
    [
        ([b'{"a":1}\n{"a":2}\n'], [{"a": 1}, {"a": 2}]),
        ([b'{"a"', b":1", b"}\n"], [{"a": 1}]),
        ([b'{"a":1}\r\n\n  \n{"a":2}\n'], [{"a": 1}, {"a": 2}]),
        ([b"installing...\n", b'{"a":1}\n'], [{"a": 1}]),
        ([b'[1,2]\nnull\n7\n"x"\n{"a":1}\n'], [{"a": 1}]),
        ([b'\xff\xfe\n{"a":1}\n'], [{"a": 1}]),
        (
            [b'{"a":"x\\ud83d"}\n{"\\uDE00b":"\\ud83d\\ude00\\ud800y"}\n'],
            [{"a": "x\ufffd"}, {"\ufffdb": "\U0001f600\ufffdy"}],
        ),
        ([b'{"a":"\\ud83d",}\n["\\ud83d"]\n{"a":NaN,"b":"\\ud83d"}\n' + b'["\\ud83d",' * 9999 + b"\n"], []),
        ([b'{"a":1}'], []),
        ([], []),
    ],
)
async def test_only_objects_come_through(chunks: list[bytes], wanted: list[dict[str, int]]) -> None:
    assert await everything(lines_of(chunks)) == wanted


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=3), max_size=8), st.data())
async def test_however_the_bytes_are_cut(messages: list[dict[str, int]], data: st.DataObject) -> None:
    stream = b"".join(orjson.dumps(message) + b"\n" for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if stream[a:b]]
    assert await everything(lines_of(chunks)) == messages


async def test_a_line_too_long_ends_it_before_it_is_whole() -> None:
    lines = lines_of([b"x" * 60] * 1000, max_line=100)
    with pytest.raises(ProtocolViolation, match="line longer"):
        await lines.next()


async def test_a_long_line_between_short_ones_is_seen() -> None:
    with pytest.raises(ProtocolViolation, match="line longer"):
        await lines_of([b"{}\n" + b"x" * 101 + b"\n{}\n"], max_line=100).next()


async def test_noise_is_forgiven_up_to_a_bound_each_turn() -> None:
    lines = lines_of([b"noise\n" * 3, b'{"a":1}\n', b"noise\n" * 3, b'{"a":2}\n', b"noise\n" * 4], max_bad=3)
    assert await lines.next() == {"a": 1}
    lines.begin_turn()
    assert await lines.next() == {"a": 2}
    lines.begin_turn()
    with pytest.raises(ProtocolViolation, match="not JSON objects"):
        await lines.next()


async def test_a_turn_has_a_size() -> None:
    lines = lines_of([b'{"a":1}\n'] * 20, max_turn=50)
    with pytest.raises(ProtocolViolation, match="in one turn"):
        await everything(lines)


async def test_reading_is_on_demand() -> None:
    reads = 0

    async def read(limit: int) -> bytes:
        nonlocal reads
        reads += 1
        return b"{}\n{}\n"

    lines = Lines(read)
    await lines.next()
    await lines.next()
    assert reads == 1
