"""The official kit is run apart (`make conformance`); here: what is said about it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance import KIT_03, KIT_10, Kit, main, report

DOCUMENT = Path(__file__).parents[1] / "docs" / "conformance.md"


@pytest.mark.parametrize("kit", [KIT_10, KIT_03], ids=["1.0", "0.3"])
def test_each_failure_that_is_expected_is_explained(kit: Kit) -> None:
    explained = DOCUMENT.read_text()

    assert [test for test in kit.expected if f"`{test}`" not in explained] == []


def test_nothing_else_is_explained_away() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in row.split("|")[1].replace("`", "").replace(" ", "").split(",")}

    assert named == {*KIT_10.expected, *KIT_03.expected}


@pytest.mark.parametrize(
    ("failures", "status"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([("TestRestFormat::test_response_content_type", "http_json")], 0, id="expected"),
        pytest.param(
            [("TestRestFormat::test_response_content_type", each) for each in ("grpc", "")], 1, id="too often"
        ),
        pytest.param([("test_anything_else", "grpc")], 1, id="not expected"),
    ],
)
def test_only_expected_failures_pass(
    failures: list[tuple[str, str]], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [("test_that_passes", "grpc", "passed"), *((test, binding, "failed") for test, binding in failures)]

    assert report(KIT_10, outcomes) == status
    assert ("NOT EXPECTED" in capsys.readouterr().out) == bool(status)


def test_a_kit_that_did_not_run_has_not_passed() -> None:
    assert report(KIT_10, [("test_skipped", "grpc", "skipped")]) == 1
    assert report(KIT_10, []) == 1


@pytest.mark.parametrize("arguments", [[], ["/nowhere"], ["."]])
def test_what_is_no_kit_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(arguments) == 2
    assert "usage:" in capsys.readouterr().err
