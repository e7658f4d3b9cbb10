"""How a turn looks to an A2A caller: the one mapping from effects to artifacts, statuses and messages.

| from the agent (ACP) | on the task |
|---|---|
| agent_message_chunk | artifact `response`, appended in wire order; `response-2` ... for further rounds |
| a file, an image, a web link in it | artifact `file:<name>`: a data part for JSON, else bytes or a URL |
| agent_thought_chunk | artifact `thinking` |
| plan | artifact `plan`, one data part, replaced |
| tool_call, tool_call_update | `working` with the server's one line; metadata.toolCall |
| diff of a completed call | artifact `diff:<path>`, unified diff |
| request_permission | `input-required`: text for people, one data part for each open question |
| usage, stop reason | metadata on the final status |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from a2a.types.a2a_pb2 import Artifact, Message, Part, TaskState, TaskStatus
from a2a.types.a2a_pb2 import Role as WireRole
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct, Value

from a2a_serve.core.approvals import one_line
from a2a_serve.core.events import Finish, Working
from a2a_serve.core.model import File, PlanEntry, Question

OUTPUT_SHOWN = 4000
"""Characters of a tool's output that its status carries: the end, where results and errors stand."""

FINAL = {
    "completed": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED,
    "canceled": TaskState.TASK_STATE_CANCELED,
    "rejected": TaskState.TASK_STATE_REJECTED,
}
TERMINAL = frozenset(FINAL.values())
INTERRUPTED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})


def text_part(text: str) -> Part:
    return Part(text=text)


def data_part(data: Any) -> Part:
    return Part(data=ParseDict(data, Value()), media_type="application/json")


def struct(data: Mapping[str, Any]) -> Struct:
    made = Struct()
    made.update(dict(data))  # ParseDict takes three times as long
    return made


def text_artifact(artifact_id: str, text: str) -> Artifact:
    return Artifact(artifact_id=artifact_id, name=artifact_id, parts=[text_part(text)])


def file_artifact(file: File) -> Artifact:
    """JSON as data that callers can use at once, everything else as it is."""
    name = f"file:{file.name}"
    return Artifact(artifact_id=name, name=name, parts=[_json_part(file) or _file_part(file)])


def _file_part(file: File) -> Part:
    if file.url:
        return Part(url=file.url, filename=file.name, media_type=file.media_type)
    return Part(raw=file.data, filename=file.name, media_type=file.media_type)


def _json_part(file: File) -> Part | None:
    if file.media_type != "application/json" or file.url:
        return None
    try:
        part = data_part(orjson.loads(file.data))
    except (ValueError, ParseError, RecursionError):
        return None  # no JSON, or more than a Value holds
    part.filename = file.name
    return part


def plan_artifact(entries: Iterable[PlanEntry]) -> Artifact:
    steps = [{"content": each.content, "priority": each.priority, "status": each.status} for each in entries]
    return Artifact(artifact_id="plan", name="plan", parts=[data_part({"entries": steps})])


def diff_artifact(path: str, unified: str) -> Artifact:
    part = Part(text=unified, media_type="text/x-diff")
    return Artifact(artifact_id=f"diff:{path}", name=f"diff:{path}", parts=[part])


def agent_message(message_id: str, task_id: str, context_id: str, parts: list[Part]) -> Message:
    return Message(message_id=message_id, task_id=task_id, context_id=context_id, role=WireRole.ROLE_AGENT, parts=parts)


def question_data(question: Question) -> dict[str, Any]:
    """A question as callers get it, on the task and from the control socket."""
    action = question.action
    shown = {"command": action.command, "path": action.path, "diff": action.diff}
    return {
        "questionId": question.id,
        "action": {
            "kind": action.kind,
            "title": action.title,
            "text": action.text,
            "digest": action.digest,
            **{key: value for key, value in shown.items() if value is not None},
        },
        "options": [{"id": each.id, "kind": each.kind, "name": each.name} for each in question.options],
        "expiresAt": timestamp(question.expires_at),
    }


def question_parts(questions: list[Question]) -> list[Part]:
    """Text for people, then one data part for each open question."""
    shown = "\n\n".join(f"{each.action.text}\n[question {each.id}]" for each in questions)
    how = "Answer allow or deny." if len(questions) == 1 else "Several questions are open: answer each by its id."
    return [text_part(f"{shown}\n\n{how}"), *(data_part(question_data(each)) for each in questions)]


def working_metadata(effect: Working) -> dict[str, Any]:
    if effect.call is None:
        return {}
    call = effect.call
    return {
        "toolCall": {
            "id": call.id,
            "kind": call.kind or "other",
            "title": effect.line,
            "status": call.status,
            "locations": list(call.paths),
            **({"output": call.output[-OUTPUT_SHOWN:]} if call.output else {}),
        }
    }


def final_metadata(effect: Finish, seconds: float) -> dict[str, Any]:
    reason = {"reason": effect.reason} if effect.reason else {}
    return {**effect.metadata, **reason, "durationSeconds": round(seconds, 3)}


def host_file_warning(changes: list[str]) -> str:
    listed = ", ".join(one_line(change) for change in changes)
    return f"Look before you use them: files that your own machine runs later were changed: {listed}."


def status(state: TaskState, now: float, message: Message | None = None) -> TaskStatus:
    made = TaskStatus(state=state, message=message)
    made.timestamp.FromNanoseconds(int(now * 1_000_000) * 1000)
    return made


def timestamp(now: float) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
