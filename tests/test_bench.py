"""The harness's own arithmetic: a wrong parser or ratio would make every number of docs/performance.md wrong."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from bench.client import BenchError, ChunkedBody, DataLines, Turn, message, result, streamed_text, task_text
from bench.load import digest, percentile
from bench.measures import GROUPS, MEASURES, groups_of
from bench.report import BEGIN, END, LIMITS, METRICS, Limit, Report, cell, number, table, write
from bench.systems import FLOOR, OURS, PEER_ECHO


def event(**what: object) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": what})


def delta(text: str, *, append: bool = True, artifact: str = "response") -> bytes:
    return event(artifactUpdate={"artifact": {"artifactId": artifact, "parts": [{"text": text}]}, "append": append})


class TestClient:
    @pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
    def test_a_chunked_body_is_the_same_however_it_is_cut(self, step: int) -> None:
        wire = b"5\r\nhello\r\n1;name=x\r\n \r\nA\r\n0123456789\r\n0\r\n\r\n"
        body = ChunkedBody()
        text = b"".join(body.feed(wire[at : at + step]) for at in range(0, len(wire), step))
        assert text == b"hello 0123456789"
        assert body.done

    def test_a_chunked_body_without_its_last_chunk_is_not_done(self) -> None:
        body = ChunkedBody()
        assert body.feed(b"5\r\nhello\r\n3\r\nab") == b"hello"
        assert not body.done

    def test_a_chunk_size_that_is_no_number_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            ChunkedBody().feed(b"zz\r\n")

    @pytest.mark.parametrize("step", [1, 4, 1000])
    @pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
    def test_data_lines_skip_pings_and_ids(self, step: int, newline: bytes) -> None:
        wire = newline.join([b": ping", b"", b"id: 1", b'data: {"a":1}', b"", b"data:{}", b"", b""])
        lines = DataLines()
        found = [line for at in range(0, len(wire), step) for line in lines.feed(wire[at : at + step])]
        assert found == [b'{"a":1}', b"{}"]

    def test_text_is_appended_and_a_snapshot_replaces_it(self) -> None:
        task = {"artifacts": [{"artifactId": "response", "parts": [{"text": "a b "}]}]}
        events = [event(task={}), delta("a ", append=False), delta("x"), event(task=task), delta("c")]
        assert streamed_text(events) == "a b c"
        assert task_text(task) == "a b "

    def test_a_turn_notes_when_the_first_event_and_the_first_text_came(self) -> None:
        turn = Turn()
        turn.note([event(task={})], 0.1)
        turn.note([delta("a")], 0.2)
        assert not turn.ended
        turn.note([event(statusUpdate={"status": {"state": "TASK_STATE_COMPLETED"}})], 0.3)
        assert (turn.first, turn.first_text, turn.total, turn.ended) == (0.1, 0.2, 0.3, True)

    def test_an_error_answer_is_not_a_result(self) -> None:
        with pytest.raises(BenchError, match="-32001"):
            result(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001}}')

    def test_a_message_names_its_conversation_only_when_it_has_one(self) -> None:
        first, second = (orjson.loads(message("SendMessage", "hi", context)) for context in ("", "c1"))
        assert "contextId" not in first["params"]["message"]
        assert second["params"]["message"]["contextId"] == "c1"
        assert first["params"]["message"]["messageId"] != second["params"]["message"]["messageId"]


class TestArithmetic:
    def test_percentiles_by_nearest_rank(self) -> None:
        values = [float(value) for value in range(100, 0, -1)]
        assert percentile(values, 0.5) == 51
        assert percentile(values, 0.99) == 100
        assert percentile([7.0], 0.5) == 7

    def test_no_values_have_no_percentile(self) -> None:
        with pytest.raises(ValueError, match="no values"):
            percentile([], 0.5)

    def test_texts_that_differ_only_at_the_end_in_spaces_are_the_same(self) -> None:
        assert digest("chunk 1 chunk 2 ") == digest("chunk 1 chunk 2")
        assert digest("chunk 1 chunk 2") != digest("chunk 2 chunk 1")

    @pytest.mark.parametrize(
        ("value", "text"), [(1234.5, "1,234"), (12.34, "12.3"), (0.1234, "0.12"), (1.0, "1"), (0.0, "0")]
    )
    def test_numbers_have_three_digits_that_matter(self, value: float, text: str) -> None:
        assert number(value) == text

    def test_best_is_the_least_or_the_most(self) -> None:
        assert cell([3.0, 1.0, 2.0], more=False) == "2 (1)"
        assert cell([3.0, 1.0, 2.0], more=True) == "2 (3)"
        assert cell([], more=True) == ""


class TestLimits:
    MEDIANS = {"us": {"turn": 3.0}, "peer": {"turn": 6.0}, "direct": {"turn": 1.5}}

    @pytest.mark.parametrize(("over", "value"), [("", 3.0), ("/peer", 0.5), ("-direct", 1.5), ("/gone", None)])
    def test_the_value_is_plain_divided_or_subtracted(self, over: str, value: float | None) -> None:
        assert Limit("x", "turn", 1, over).value(self.MEDIANS, "us") == value

    def test_a_bound_is_kept_from_its_own_side(self) -> None:
        assert Limit("x", "turn", 2).holds(2.0)
        assert not Limit("x", "turn", 2).holds(2.1)
        assert Limit("x", "turn", 2, least=True).holds(2.0)
        assert not Limit("x", "turn", 2, least=True).holds(1.9)

    def test_every_limit_is_about_something_in_the_table(self) -> None:
        assert {limit.key for limit in LIMITS} <= {metric.key for metric in METRICS} | {"chunks_flat"}


class TestReport:
    def test_medians_ratios_and_broken_limits_are_shown(self) -> None:
        report = Report("a2a-serve", "a2acode", notes=["command: x"])
        for took in (8.0, 4.0, 6.0):
            report.add("a2a-serve", {"turn_1_ms": took})
            report.add("a2acode", {"turn_1_ms": took * 2, "list_ms": 9.0})
        text = " ".join(report.markdown().split())
        assert "| whole turn p50, 1 caller, ms | 6 (4) | 12 (8) | 0.50 |" in text
        assert "| ListTasks, page of 50 of 5,000, p50, ms | | 9 (9) | |" in text
        assert "| whole turn, 1 caller, against a2acode | at most 0.60 | 0.50 | yes |" in text
        report.add("a2a-serve", {"start_ms": 1300.0})
        assert "| start to first card, ms | at most 1,200 | 1,300 | **no** |" in " ".join(report.markdown().split())

    def test_flatness_is_the_slowest_length_against_the_fastest(self) -> None:
        report = Report("us", "peer")
        report.add("us", {"chunks_1000_s": 100.0, "chunks_2000_s": 80.0})
        assert report.medians()["us"]["chunks_flat"] == pytest.approx(0.8)

    def test_a_table_has_padded_columns(self) -> None:
        assert table(["a", "bb"], [["ccc", "d"]]).splitlines() == ["| a   | bb |", "|-----|----|", "| ccc | d  |"]


class TestPage:
    def test_the_block_is_replaced_and_the_words_around_it_stay(self, tmp_path: Path) -> None:
        page = tmp_path / "docs" / "performance.md"
        write(page, "one\n")
        page.write_text(page.read_text() + "after\n")
        write(page, "two\n")
        assert page.read_text() == f"# Performance\n\n{BEGIN}\ntwo\n{END}\nafter\n"


class TestGroups:
    WANTED = set(MEASURES)

    def test_every_measurement_is_in_one_group(self) -> None:
        assert sorted(name for group in GROUPS for name in group) == sorted(MEASURES)

    def test_an_echo_parks_nothing_and_the_floor_keeps_nothing(self) -> None:
        assert groups_of(OURS, self.WANTED) == [list(group) for group in GROUPS]
        assert groups_of(PEER_ECHO, self.WANTED) == [["idle", "one", "many", "get", "list"], ["chunks"]]
        assert groups_of(FLOOR, self.WANTED) == [["idle", "one", "many"], ["chunks"]]

    def test_unwanted_measurements_start_no_server(self) -> None:
        assert groups_of(OURS, {"slow"}) == [["slow"]]
        assert groups_of(FLOOR, {"slow"}) == []
