"""The settings: every section, its defaults and bounds. The commented first config and the reference are made of this.

Each description is one line that a newcomer reads above the setting in `.a2a/config.yaml`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from a2a_serve.core.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_size(value: Any) -> int:
    """Bytes of `2g`, `512m`, `1.5 GiB` (powers of 1024) or a plain number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be a size such as 512m or 2g")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def size_text(size: int) -> str:
    """The shortest exact way to write `size`: `2g`, `512m`, `1000`."""
    for unit in ("t", "g", "m", "k"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)


def _in_bounds(low: int) -> PlainValidator:
    def check(value: Any) -> int:
        size = parse_size(value)
        if size < low:
            raise ValueError(f"must be at least {size_text(low)}")
        return size

    return PlainValidator(check)


def _words(value: Any) -> Any:
    """A command line may be one string; it is split as a shell would, and never run by one."""
    return shlex.split(value) if isinstance(value, str) else value


def _port_or_off(value: Any) -> int | str:
    if value == "off":
        return "off"
    try:
        port = -1 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        port = -1
    if not 0 <= port <= 65535:
        raise ValueError("must be a port from 0 to 65535, or off")
    return port


def _web_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.username
    except ValueError:
        good = False
    if not good or re.search(r"[\s\x00-\x1f]", value):
        raise ValueError("must be an http:// or https:// URL without a user name")
    return value


Size = PlainSerializer(size_text, return_type=str, when_used="json")
Mime = Annotated[str, Field(pattern=r"^[\w.+-]+/[\w.+*-]+$")]
Binding = Literal["jsonrpc", "rest", "grpc"]


class Section(BaseModel):
    """Strict about names, and about true and false where neither is meant."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_stray_bool(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and field.annotation is not bool:
            raise ValueError("must not be true or false")
        return value


class Agent(Section):
    kind: str | None = Field(
        None,
        description="Which coding agent: claude, codex, gemini, opencode or demo. null: chosen by the model key found.",
    )
    command: Annotated[list[str], BeforeValidator(_words)] | None = Field(
        None,
        description="Any other agent that speaks ACP on its standard input and output: its command line.",
        min_length=1,
    )
    image: str | None = Field(None, description="The image the agent runs in. null: the kind's own.")
    environment: dict[str, str] = Field(
        {}, description="Further environment variables of the agent. It can read them: no secrets here."
    )

    @field_validator("environment")
    @classmethod
    def _named_well(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _ENV_NAME.fullmatch(name) or "\0" in text:
                raise ValueError(f"has no good variable name in {name!r}")
        return value


class Sandbox(Section):
    kind: Literal["docker", "local"] = Field(
        "docker", description="docker: the agent runs in a container. local: it runs as you, with all that you may do."
    )
    network: Literal["none", "open"] | None = Field(
        None, description="none: no network but the model API through this server. open: any. null: as the agent needs."
    )
    protect: Literal["off", "git", "strict"] = Field(
        "git", description="git: the agent cannot change .git hooks and config. strict: nothing in .git. off: all."
    )
    memory: Annotated[int, _in_bounds(16 << 20), Size] = Field(2 << 30, description="Memory of one agent process.")
    cpus: float = Field(2.0, gt=0, le=1024, description="Processors that one agent process may keep busy.")
    pids: int = Field(512, ge=16, le=1 << 22, description="Processes and threads of one agent process.")
    tmp: Annotated[int, _in_bounds(1 << 20), Size] = Field(512 << 20, description="Room in /tmp (it is memory).")


class Listen(Section):
    host: str = Field("127.0.0.1", description="The address to listen on. Only this machine's own, for now.")
    port: int = Field(41241, ge=0, le=65535, description="Port of JSON-RPC, HTTP+JSON and the card. 0: a free one.")
    grpc_port: Annotated[int | Literal["off"], PlainValidator(_port_or_off)] = Field(
        41242, description="Port of gRPC. 0: a free one. off: no gRPC."
    )
    bindings: list[Binding] = Field(
        ["jsonrpc", "rest", "grpc"], min_length=1, description="The A2A protocol bindings to offer."
    )
    url: str | None = Field(None, description="The address to put on the card when callers come by another name.")

    @property
    def grpc(self) -> bool:
        """Whether gRPC is served."""
        return "grpc" in self.bindings and self.grpc_port != "off"

    @field_validator("host")
    @classmethod
    def _is_loopback(cls, value: str) -> str:
        if value not in LOOPBACK:
            raise ValueError(
                f"must be one of {', '.join(LOOPBACK)}: other machines could reach {value}, "
                "and no way for them to sign in is configured"
            )
        return value

    @field_validator("url")
    @classmethod
    def _is_web(cls, value: str | None) -> str | None:
        return None if value is None else _web_url(value).rstrip("/")

    @model_validator(mode="after")
    def _serves_something(self) -> Listen:
        if self.bindings == ["grpc"] and self.grpc_port == "off":
            raise ValueError("serves nothing: grpc is the only binding and grpc_port is off")
        if self.grpc and self.port == self.grpc_port != 0:
            raise ValueError("needs two ports: port and grpc_port are the same")
        return self


class Provider(Section):
    organization: str = Field(min_length=1, description="Who offers the agent.")
    url: Annotated[str, PlainValidator(lambda value: _web_url(str(value)))] = Field(description="Their website.")


class Skill(Section):
    id: str = Field(min_length=1, description="A short name for programs.")
    name: str = Field(min_length=1, description="A name for people.")
    description: str = Field(min_length=1, description="What it does.")
    tags: list[str] = Field(min_length=1, description="Words to find it by.")
    examples: list[str] = Field([], description="Messages that use it.")


_CODING = Skill(
    id="coding",
    name="Work on the project",
    description="Reads and explains the project, changes its files and runs commands. Asks before it changes anything.",
    tags=["coding"],
    examples=["Explain what this project does.", "Fix the failing test."],
)


class Card(Section):
    """What the agent card says. An empty name stands for the folder's name."""

    name: str = Field("", max_length=200, description="The agent's name. Empty: the folder's name.")
    description: str = Field(
        "A coding agent that works in this project folder.", min_length=1, description="What it is for, in a sentence."
    )
    version: str = Field("1.0.0", min_length=1, max_length=64, description="The agent's own version.")
    provider: Provider | None = Field(None, description="Who offers it: {organization: ..., url: ...}.")
    skills: list[Skill] = Field([_CODING], min_length=1, description="What it can do.")
    input_modes: list[Mime] = Field(["text/plain", "application/json"], min_length=1, description="What it takes.")
    output_modes: list[Mime] = Field(["text/plain", "application/json"], min_length=1, description="What it gives.")
    documentation_url: str | None = Field(None, description="Where to read more.")
    icon_url: str | None = Field(None, description="Its picture.")

    @field_validator("documentation_url", "icon_url")
    @classmethod
    def _is_web(cls, value: str | None) -> str | None:
        return None if value is None else _web_url(value)

    @field_validator("skills")
    @classmethod
    def _ids_differ(cls, value: list[Skill]) -> list[Skill]:
        if len({skill.id for skill in value}) < len(value):
            raise ValueError("has two skills with the same id")
        return value


class Turns(Section):
    timeout: float = Field(
        600,
        ge=0,
        le=30 * 86400,
        description="Seconds a turn may take; it stands still while a question is open. 0: any.",
    )
    max_rounds: int = Field(
        0, ge=0, description="Prompts a task may take: the first, and one for each denial in words. 0: any."
    )
    budget: float = Field(
        0, ge=0, description="Cost of a conversation, as its agent reports it, at which a turn is ended. 0: any."
    )
    cancel_grace: float = Field(5, ge=0, le=600, description="Seconds the agent has to stop before it is ended.")
    idle_stop: float = Field(900, ge=0, description="Seconds after which an agent without work is stopped. 0: never.")


class Questions(Section):
    preset: Literal["ask", "plan"] = Field(
        "ask", description="ask: each change is a question. plan: each change is denied at once, nobody is asked."
    )
    expire: float = Field(3600, ge=1, le=30 * 86400, description="Seconds a question waits for its answer.")


class Session(Section):
    reuse_by_context: bool = Field(True, description="Whether the agent remembers earlier turns of a conversation.")
    ttl: float = Field(0, ge=0, description="Seconds after which a conversation starts afresh. 0: never.")
    cleanup_interval: float = Field(0, ge=0, description="Seconds between sweeps of those. 0: at their next turn.")


class ModelApi(Section):
    """Where model calls of a sandboxed agent go. The server adds the key; the agent never has it."""

    upstream: str = Field(description="The API's address.")
    key_env: str | None = Field(None, description="The server's environment variable that holds the key.")
    key_file: Path | None = Field(None, description="A file that holds the key; it wins over key_env.")
    scheme: Literal["bearer", "x-api-key", "x-goog-api-key"] = Field("bearer", description="How the key is sent.")

    @field_validator("upstream")
    @classmethod
    def _is_web(cls, value: str) -> str:
        return _web_url(value).rstrip("/")

    @field_validator("key_env")
    @classmethod
    def _is_name(cls, value: str | None) -> str | None:
        if value is not None and not _ENV_NAME.fullmatch(value):
            raise ValueError("must be the name of an environment variable, not the key itself")
        return value

    def read_key(self, environment: Mapping[str, str] = os.environ) -> str:
        """The key; empty when none is there. Raises ConfigError when `key_file` cannot be read."""
        if self.key_file is None:
            return environment.get(self.key_env or "", "").strip()
        try:
            return self.key_file.expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(f"Cannot read the model key in {self.key_file}: {reason}.", "Check `models`.") from error


MODELS = {
    "anthropic": ModelApi(
        upstream="https://api.anthropic.com", key_env="ANTHROPIC_API_KEY", key_file=None, scheme="x-api-key"
    ),
    "openai": ModelApi(upstream="https://api.openai.com", key_env="OPENAI_API_KEY", key_file=None, scheme="bearer"),
    "gemini": ModelApi(
        upstream="https://generativelanguage.googleapis.com",
        key_env="GEMINI_API_KEY",
        key_file=None,
        scheme="x-goog-api-key",
    ),
}


class Limits(Section):
    max_request_mib: int = Field(16, ge=1, le=1024, description="The largest request, in MiB.")
    connections: int = Field(256, ge=8, le=65536, description="Open connections on one port.")


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="What goes into the log.")


class Settings(Section):
    agent: Agent = Field(Agent(), description="The coding agent.")
    sandbox: Sandbox = Field(Sandbox(), description="What the agent may reach and use.")
    listen: Listen = Field(Listen(), description="Where callers reach the server.")
    card: Card = Field(Card(), description="What the agent card tells callers.")
    turns: Turns = Field(Turns(), description="How long things may take.")
    questions: Questions = Field(Questions(), description="Questions before changes.")
    session: Session = Field(Session(), description="What the agent remembers.")
    models: dict[str, ModelApi] = Field(
        MODELS, description="Model APIs for agents without a network. The key stays here."
    )
    limits: Limits = Field(Limits(), description="Limits of the listeners.")
    log: Log = Field(Log(), description="The server's log: .a2a/state/logs/server.log.")

    @field_validator("models")
    @classmethod
    def _named_well(cls, value: dict[str, ModelApi]) -> dict[str, ModelApi]:
        for name in value:
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", name):
                raise ValueError(f"has a name that cannot be part of a URL: {name!r}")
        return value
