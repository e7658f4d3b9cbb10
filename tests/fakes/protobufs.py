"""Any message of a2a.proto, for hypothesis."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st


def parse(value: Any, into: Message) -> Message:
    return ParseDict(value, into)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60).map(float)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
SECONDS = st.integers(-62_135_596_800, 253_402_300_799)
NANOS = st.integers(0, 999_999_999) | st.sampled_from([0, 1_000, 999_000, 1_000_000, 120_000_000])
WELL_KNOWN: dict[str, st.SearchStrategy[Any]] = {
    "google.protobuf.Struct": st.dictionaries(TEXT, JSON_VALUES, max_size=3).map(lambda each: parse(each, Struct())),
    "google.protobuf.Value": JSON_VALUES.map(lambda each: parse(each, Value())) | st.just(Value()),
    "google.protobuf.Timestamp": st.builds(lambda s, n: Timestamp(seconds=s, nanos=n), SECONDS, NANOS),
}
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: TEXT,
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=8),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: st.integers(-5, 2**31 - 1),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 12),  # some of them have no name
}


def one_field(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is None:
        return SCALARS[field.type]
    known = WELL_KNOWN.get(field.message_type.full_name)
    return known if known is not None else messages(GetMessageClass(field.message_type), depth - 1)


@st.composite
def messages(draw: st.DrawFn, kind: type[Any], depth: int = 4) -> Any:
    """A message of `kind` with any of its fields set, to whatever they can hold."""
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if depth == 0 or draw(st.booleans()):
            continue
        content = one_field(field, depth)
        if field.is_repeated:
            getattr(made, field.name).extend(draw(st.lists(content, max_size=2)))
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(draw(content))
        else:
            setattr(made, field.name, draw(content))
    return made
