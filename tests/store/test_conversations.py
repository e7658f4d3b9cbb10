"""Conversations and their handles; questions, decided once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from a2a.types.a2a_pb2 import Task

from a2a_serve.core.model import Conversation, Question, QuestionState
from a2a_serve.store.conversations import Conversations, Questions
from a2a_serve.store.db import Database
from a2a_serve.store.tasks import Tasks

MakeTask = Callable[..., Task]
MakeQuestion = Callable[..., Question]

ALICE, BOB = "pair:alice", "pair:bob"


@pytest.fixture
def conversations(db: Database) -> Conversations:
    return Conversations(db)


@pytest.fixture
async def questions(db: Database, make_task: MakeTask) -> Questions:
    for task_id in ("t", "u"):
        await Tasks(db).create(make_task(task_id), ALICE, f"m-{task_id}", b"")
    return Questions(db)


async def test_a_conversation_is_made_once_and_found_again(conversations: Conversations) -> None:
    made = await conversations.open(ALICE, "c")
    assert made == Conversation("c", ALICE, "k1")
    assert await conversations.open(ALICE, "c") == made
    assert (await conversations.open(ALICE, "d")).handle == "k2"


@pytest.mark.req("A6")
async def test_the_same_context_of_another_caller_is_their_own(conversations: Conversations) -> None:
    await conversations.open(ALICE, "c")
    await conversations.set_session(ALICE, "c", "s1", "demo", 5.0)
    assert await conversations.open(BOB, "c") == Conversation("c", BOB, "k2")


@pytest.mark.req("T1")
async def test_the_session_is_kept(conversations: Conversations) -> None:
    await conversations.open(ALICE, "c")
    await conversations.set_session(ALICE, "c", "s1", "demo", 5.0)
    assert await conversations.open(ALICE, "c") == Conversation("c", ALICE, "k1", "s1", "demo", 5.0)


@pytest.mark.req("T1")
async def test_old_sessions_are_forgotten_and_their_conversations_named(conversations: Conversations) -> None:
    for context, made in (("old", 5.0), ("new", 9.0)):
        await conversations.open(ALICE, context)
        await conversations.set_session(ALICE, context, f"s-{context}", "demo", made)
    assert await conversations.forget_sessions(before=9.0) == [Conversation("old", ALICE, "k1")]
    assert (await conversations.open(ALICE, "old")).session_id == ""
    assert (await conversations.open(ALICE, "new")).session_id == "s-new"
    assert await conversations.forget_sessions(before=9.0) == []


async def test_a_session_needs_a_conversation(conversations: Conversations) -> None:
    await conversations.open(ALICE, "c")
    for owner, context in ((BOB, "c"), (ALICE, "d")):
        with pytest.raises(LookupError):
            await conversations.set_session(owner, context, "s", "demo", 5.0)


async def test_twenty_at_once_open_one_conversation(conversations: Conversations) -> None:
    found = await asyncio.gather(*(conversations.open(ALICE, "c") for _ in range(20)))
    assert set(found) == {Conversation("c", ALICE, "k1")}


async def test_handles_of_twenty_made_at_once_differ(conversations: Conversations) -> None:
    found = await asyncio.gather(*(conversations.open(ALICE, f"c{n}") for n in range(20)))
    assert {each.handle for each in found} == {f"k{n}" for n in range(1, 21)}


# --- questions -------------------------------------------------------------------------------------------------------


async def test_a_question_comes_back_whole(questions: Questions, make_question: MakeQuestion) -> None:
    asked = make_question("q")
    await questions.add(asked)
    assert await questions.get("q") == asked
    assert await questions.get("nowhere") is None


async def test_a_question_of_no_task_is_refused(questions: Questions, make_question: MakeQuestion) -> None:
    with pytest.raises(Exception, match="FOREIGN KEY"):
        await questions.add(make_question("q", "nowhere"))


@pytest.mark.req("Q4")
async def test_the_first_of_twenty_answers_wins(questions: Questions, make_question: MakeQuestion) -> None:
    await questions.add(make_question("q"))
    won = await asyncio.gather(
        *(
            questions.decide("q", QuestionState.ANSWERED, by=f"pair:{n}", option_id=str(n), reason=f"because {n}")
            for n in range(20)
        )
    )
    assert won.count(True) == 1
    n = won.index(True)
    assert await questions.get("q") == replace(
        make_question("q"),
        state=QuestionState.ANSWERED,
        answered_by=f"pair:{n}",
        option_id=str(n),
        reason=f"because {n}",
    )


@pytest.mark.parametrize("state", [state for state in QuestionState if state is not QuestionState.PENDING])
@pytest.mark.req("Q9")
async def test_a_closed_question_stays_closed(
    questions: Questions, make_question: MakeQuestion, state: QuestionState
) -> None:
    await questions.add(make_question("q"))
    assert await questions.decide("q", state) is True
    assert await questions.decide("q", QuestionState.ANSWERED, by="late", option_id="yes") is False
    assert await questions.get("q") == replace(make_question("q"), state=state)
    assert await questions.open() == []


async def test_deciding_what_is_not_there_or_back_to_pending(questions: Questions, make_question: MakeQuestion) -> None:
    assert await questions.decide("nowhere", QuestionState.ANSWERED) is False
    await questions.add(make_question("q"))
    with pytest.raises(ValueError, match="opened again"):
        await questions.decide("q", QuestionState.PENDING)
    with pytest.raises(ValueError, match="opened again"):
        await questions.close_all(QuestionState.PENDING)
    assert await questions.count_open() == 1


async def test_open_questions_in_the_order_of_asking(questions: Questions, make_question: MakeQuestion) -> None:
    """Also when the clock goes back in between."""
    asked = [make_question("z", at=5), make_question("y", "u", at=3), make_question("x", at=9)]
    for question in asked:
        await questions.add(question)
    assert await questions.open() == asked
    assert await questions.open("t") == [asked[0], asked[2]]
    assert await questions.open("nowhere") == []
    assert await questions.count_open() == 3


@pytest.mark.req("Q9", "R1")
async def test_close_all_gives_what_it_closed(questions: Questions, make_question: MakeQuestion) -> None:
    for name in "bac":
        await questions.add(make_question(name))
    await questions.decide("a", QuestionState.ANSWERED, by=ALICE, option_id="yes")
    closed = await questions.close_all(QuestionState.CANCELED)
    assert closed == [replace(make_question(name), state=QuestionState.CANCELED) for name in "bc"]
    assert await questions.close_all(QuestionState.CANCELED) == []
    assert await questions.count_open() == 0
    answered = await questions.get("a")
    assert answered is not None
    assert answered.state is QuestionState.ANSWERED
