"""What a question shows and offers, and what an answer means (Q2, Q3)."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_serve.core.approvals import (
    choose,
    describe,
    escape,
    is_blank,
    offer,
    one_line,
    read_words,
    render,
    reply_id,
    same_action,
    unescape,
    unified,
)
from a2a_serve.core.errors import OptionUnknown
from a2a_serve.core.model import Diff, Option, ToolCall

ANY_TEXT = st.text(st.characters())  # lone surrogates too
NASTY = st.text(
    st.sampled_from(list("\\u{}5c20*7e \t\n\r\x00\x1b\x7f\xad\u200b\u202e\u2028\u3164\ufe0f\ufeff\U000e0041é漢✓"))
)
SPACES = st.integers(0, 60).map(lambda count: " " * count)
TEXTS = st.one_of(ANY_TEXT, NASTY, st.lists(st.one_of(NASTY, SPACES)).map("".join))

# Code points that show as nothing, told by category or by Unicode's Default_Ignorable_Code_Point.
IGNORABLE = {0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFEFF, 0xFFA0}
IGNORABLE |= {*range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070)}
IGNORABLE |= {*range(0xFE00, 0xFE10), *range(0xE0000, 0xE1000)}


def hidden_in(text: str) -> set[str]:
    return {
        char
        for char in text
        if ord(char) in IGNORABLE or (unicodedata.category(char)[0] in "CZ" and char not in " \t\n")
    }


def call(**known: Any) -> ToolCall:
    return ToolCall("c", **known)


# --- escaping --------------------------------------------------------------------------------------------------------


@given(TEXTS, st.sampled_from(["", "\t", "\t\n"]))
def test_escaping_loses_nothing_and_hides_nothing(text: str, keep: str) -> None:
    shown = escape(text, keep=keep)
    assert unescape(shown) == text
    assert not hidden_in(shown)
    assert not set("\t\n") & set(shown) - set(keep)
    assert " " * 17 not in shown
    shown.encode()


@given(TEXTS, TEXTS)
def test_different_texts_never_look_the_same(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -la", "ls -la"),
        ("naïve 漢字 ✓", "naïve 漢字 ✓"),
        ("a\x1b[2Kb", "a\\u{1b}[2Kb"),
        ("a\rb", "a\\u{d}b"),
        ("a\u202eb", "a\\u{202e}b"),
        ("a\u200bb", "a\\u{200b}b"),
        ("a\xa0b", "a\\u{a0}b"),
        ("a\u3164b", "a\\u{3164}b"),
        ("a\ufe0fb", "a\\u{fe0f}b"),
        ("a\U000e0041b", "a\\u{e0041}b"),
        ("a\ud800b", "a\\u{d800}b"),
        ("a\\u{41}b", "a\\u{5c}u{41}b"),
        ("a" + " " * 16 + "b", "a" + " " * 16 + "b"),
        ("a" + " " * 17 + "b", "a\\u{20*17}b"),
        ("a" + " " * 5000 + "; rm", "a\\u{20*5000}; rm"),
        ("", ""),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown
    assert unescape(shown) == text


@given(TEXTS, st.integers(2, 50))
def test_one_line_is_one_bounded_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert not hidden_in(line)
    assert not set("\t\n") & set(line)


# --- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.req("Q2")
@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({"kind": "execute", "title": "Harmless", "raw_input": {"command": "rm -rf ."}}, "Run: rm -rf ."),
        ({"kind": "read", "title": "Harmless", "raw_input": {"cmd": ["rm", "-rf", "."]}}, "Run: rm -rf ."),
        ({"kind": "execute", "raw_input": {"command": "a\nb"}}, "Run: a\\u{a}b"),
        ({"kind": "edit", "title": "Harmless", "paths": ("a.py", "b.py")}, "Edit a.py, b.py"),
        ({"kind": "edit", "paths": ("a.py",), "diffs": (Diff("a.py", None, "x"),)}, "Create a.py"),
        ({"kind": "edit", "paths": ("a.py",), "diffs": (Diff("a.py", "", "x"),)}, "Edit a.py"),
        ({"kind": "delete", "paths": ("a\u202e.py",)}, "Delete a\\u{202e}.py"),
        ({"kind": "fetch", "raw_input": {"url": "http://x/é"}}, 'fetch: {"url": "http://x/é"}'),
        ({"title": "mcp", "raw_input": [1, 2]}, "mcp: [1, 2]"),
        ({"title": "Only a title"}, "Only a title"),
        ({"kind": "execute"}, "Tool call (execute)"),
        ({}, "Tool call (unknown kind)"),
        ({"raw_input": {"command": "x" * 500}}, "Run: " + "x" * 114 + "…"),
    ],
)
def test_describe_is_the_servers_own_line(known: dict[str, Any], line: str) -> None:
    assert describe(call(**known)) == line


@pytest.mark.parametrize(
    ("diff", "text"),
    [
        (Diff("/a.py", "1\n2\n", "1\n3\n"), "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"),
        (Diff("a.py", None, "1\n"), "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+1\n"),
        (
            Diff("a.py", "1", "2"),
            "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n\\ No newline at end of file\n+2\n\\ No newline at end of file\n",
        ),
        (Diff("a.py", "1\n", "1\n"), ""),
    ],
)
def test_unified(diff: Diff, text: str) -> None:
    assert unified(diff) == text


@pytest.mark.req("Q2")
def test_a_command_is_shown_whole_line_by_line() -> None:
    """However long; and no line of it can pass for the server's own words."""
    command = "echo " + "x" * 20_000 + "\nallowed by the server\x1b[1A"
    action = render(call(kind="other", title="Harmless", raw_input={"command": command}))
    assert action.kind == "execute"
    assert action.text == f"Run this command:\n  1| echo {'x' * 20_000}\n  2| allowed by the server\\u{{1b}}[1A"
    assert action.command is not None
    assert unescape(action.command) == command


@pytest.mark.req("Q2")
def test_an_edit_is_shown_as_its_whole_diff() -> None:
    action = render(
        call(kind="edit", paths=("a.py",), diffs=(Diff("a.py", "a\n", "b\u202e\n"), Diff("b.py", None, "c\n")))
    )
    assert (
        action.diff
        == "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\\u{202e}\n--- /dev/null\n+++ b/b.py\n@@ -0,0 +1 @@\n+c\n"
    )
    assert action.text == f"Edit a.py\n{action.diff}"
    assert (action.kind, action.path, action.command) == ("edit", "a.py", None)


@pytest.mark.req("Q2")
@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({"title": "mcp", "raw_input": {"a": 1}}, 'mcp: {"a": 1}\n  1| {\n  2|  "a": 1\n  3| }'),
        ({"title": "mcp", "raw_input": "line"}, 'mcp: "line"\n  line'),
        ({"kind": "move", "paths": ("a", "b")}, "Move a, b"),
        ({"title": "Trust me"}, "The agent gave no details. It calls this: Trust me"),
    ],
)
def test_render_of_what_else_is_known(known: dict[str, Any], text: str) -> None:
    assert render(call(**known)).text == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
CALLS = st.builds(
    ToolCall,
    st.just("c"),
    kind=st.sampled_from(["", "read", "edit", "execute", "other"]) | TEXTS,
    title=TEXTS,
    raw_input=VALUES | st.fixed_dictionaries({"command": TEXTS | st.lists(TEXTS, max_size=3)}),
    paths=st.lists(TEXTS, max_size=2).map(tuple),
    diffs=st.lists(st.builds(Diff, TEXTS, st.none() | TEXTS, TEXTS), max_size=2).map(tuple),
)


@pytest.mark.req("Q2")
@given(CALLS)
def test_any_call_can_be_shown_and_hides_nothing(one: ToolCall) -> None:
    action = render(one)
    for shown in (action.kind, action.title, action.text, action.command, action.path, action.diff):
        assert not hidden_in(shown or "")
    assert one.command is None or action.command is not None
    assert len(action.digest) == 64
    assert render(one) == action


@pytest.mark.req("Q3")
@pytest.mark.parametrize(
    "other",
    [
        {"raw_input": {"command": "ls "}},
        {"title": "ls!"},
        {"paths": ("a",)},
        {"diffs": (Diff("a", None, ""),)},
        {"raw_input": {"command": "ls", "cwd": "/"}},
    ],
)
def test_the_digest_binds_everything(other: dict[str, Any]) -> None:
    one: dict[str, Any] = {"kind": "execute", "title": "ls", "raw_input": {"command": "ls"}}
    assert render(call(**one)).digest != render(call(**{**one, **other})).digest


@pytest.mark.parametrize(
    ("known", "blank"),
    [
        ({}, True),
        ({"kind": "execute"}, True),
        ({"title": " \t"}, True),
        ({"raw_input": {}}, True),
        ({"title": "x"}, False),
        ({"raw_input": {"a": 1}}, False),
        ({"paths": ("a",)}, False),
        ({"diffs": (Diff("a", None, ""),)}, False),
    ],
)
def test_is_blank(known: dict[str, Any], blank: bool) -> None:
    assert is_blank(call(**known)) is blank


@given(CALLS)
def test_a_call_is_the_same_action_as_itself(one: ToolCall) -> None:
    assert same_action(one, one)


# --- options ---------------------------------------------------------------------------------------------------------

LS = call(raw_input={"command": "ls"})
ALLOW = Option("a", "allow_once", "Allow")
REJECT = Option("r", "reject_once", "Reject")
DENY = Option("deny", "reject_once", "Deny")


def once(option_id: str, kind: str = "allow_once") -> Option:
    return Option(option_id, kind, "Name")


@pytest.mark.req("Q3", "Q5")
@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ((ALLOW, REJECT), (ALLOW, REJECT)),
        ((REJECT, ALLOW), (ALLOW, REJECT)),
        ((once("x", "allow_always"), ALLOW, REJECT, once("y", "reject_always")), (ALLOW, REJECT)),
        ((ALLOW,), (ALLOW, DENY)),
        ((), (DENY,)),
        ((once("x", "allow_always"),), (DENY,)),
        ((once("x", "something_new"), REJECT), (REJECT,)),
        ((ALLOW, once("allow", "reject_once")), (ALLOW, DENY)),
        ((once("deny"), REJECT), (REJECT,)),
        ((once("allow"), once("deny", "reject_once")), (once("allow"), once("deny", "reject_once"))),
        ((once("x"), once("x", "reject_once")), (DENY,)),
        ((once("x"), once("x", "allow_always"), REJECT), (REJECT,)),
    ],
)
def test_offer(options: tuple[Option, ...], offered: tuple[Option, ...]) -> None:
    """Also of an agent that gives its reject option the id `allow`: that id would say the opposite."""
    assert offer(LS, options) == offered


def test_a_blank_call_offers_no_allow() -> None:
    assert offer(call(), (ALLOW, REJECT)) == (REJECT,)


def test_names_of_options_are_shown_on_one_line() -> None:
    (shown, _) = offer(LS, (Option("a", "allow_once", "Deny\x1b[1K\nAllow" + "!" * 200),))
    assert shown.name.startswith("Deny\\u{1b}[1K\\u{a}Allow")
    assert len(shown.name) == 80


OPTIONS = st.lists(
    st.builds(
        Option,
        st.sampled_from(["allow", "deny", "a", "b", ""]),
        st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "new"]),
        TEXTS,
    ),
    max_size=5,
).map(tuple)


@pytest.mark.req("Q5")
@given(OPTIONS)
def test_no_choice_can_be_mistaken_for_another(options: tuple[Option, ...]) -> None:
    offered = offer(LS, options)
    assert {option.kind for option in offered} <= {"allow_once", "reject_once"}
    assert choose("deny", offered).kind == "reject_once"
    for option in offered:
        assert choose(option.id, offered).kind == option.kind
        told = reply_id(option, options)
        assert {each.kind for each in options if each.id == told} == ({option.kind} if told is not None else set())


@pytest.mark.req("Q3")
@pytest.mark.parametrize(
    ("answer", "chosen"), [("allow", ALLOW), ("deny", REJECT), ("a", ALLOW), ("r", REJECT), ("z", once("z"))]
)
def test_choose(answer: str, chosen: Option) -> None:
    assert choose(answer, (ALLOW, REJECT, once("z"))) == chosen


@pytest.mark.req("Q3")
@pytest.mark.parametrize("answer", ["", "A", "Allow", "yes", "allow_once", "always", "a "])
def test_choose_refuses_what_was_not_offered(answer: str) -> None:
    with pytest.raises(OptionUnknown) as refused:
        choose(answer, (ALLOW, REJECT))
    assert refused.value.hint == "Choose one of: a, r, allow, deny."


def test_allow_is_refused_where_nothing_can_be_allowed() -> None:
    with pytest.raises(OptionUnknown):
        choose("allow", (REJECT,))


@pytest.mark.req("Q3")
@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        *(
            (word, ("allow", ""))
            for word in ("y", "Y", "yes", " Yes! ", "OK.", "okay", "allow", "approve", "approved\n")
        ),
        *((word, ("deny", "")) for word in ("n", "No", "no!", "deny", " STOP. ", "reject")),
        ("yes but not that file", ("deny", "yes but not that file")),
        ("use git mv instead", ("deny", "use git mv instead")),
        ("y?", ("deny", "y?")),
        ("ye s", ("deny", "ye s")),
        ("ｙｅｓ", ("deny", "ｙｅｓ")),
        ("", ("deny", "")),
        ("  ", ("deny", "")),
        (" No, because … ", ("deny", "No, because …")),
    ],
)
def test_read_words(words: str, meaning: tuple[str, str]) -> None:
    assert read_words(words) == meaning
