"""The agent family's contract: an agent kind is data, one TOML file in `data/`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from a2a_serve.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AgentKind:
    """What the host must know of a coding agent.

    `command` starts it speaking ACP on stdio, inside its image. `mode` is the session mode in which it asks before
    every change; it is set and confirmed on every new or loaded session. `unasked` names tool titles that change
    nothing outside the agent and so need no permission (its own to-do list). `hears_reason`: a denial's words reach
    it with the outcome; otherwise they are sent as a further prompt of the same task. `network`: the sandbox modes
    it can work in, the preferred first. `model_env`: environment for the model proxy; `{base}` is its base URL.
    `folders`: project folders whose settings could lift its ask-mode.
    """

    name: str
    title: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    mode: str = ""
    session_meta: dict[str, Any] = field(default_factory=dict)
    unasked: tuple[str, ...] = ()
    hears_reason: bool = False
    network: tuple[str, ...] = ("none",)
    model: str = ""
    """Name of the model API it speaks (`anthropic`, `openai` ...): the `<name>` of `/m/<name>/`. '' needs none."""
    model_env: dict[str, str] = field(default_factory=dict)
    key_env: str = ""
    """The host's environment variable that holds the model key and makes this kind the choice of a first start."""
    folders: tuple[str, ...] = ()
    progress_grace: float = 0.0
    """Seconds for which it may say that a changing call is in progress before it asks; 0 where it asks first."""
    open_sessions: int = 64
    """How many sessions one process keeps open; beyond, the one unused for longest is closed and restored later."""
    random_env: tuple[str, ...] = ()
    """Variables that get a fresh random value for each process: secrets of the agent's own between its parts."""

    @classmethod
    def load(cls, name: str) -> AgentKind:
        """Read the kind's data file. Raises ConfigError naming the known kinds."""
        if name not in kinds():
            known = ", ".join(kinds())
            raise ConfigError(f"There is no agent kind {name!r}.", f"Choose one of {known}, or set agent.command.")
        file = resources.files(__name__) / "data" / f"{name}.toml"
        return cls.parse(name, file.read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, name: str, text: str) -> AgentKind:
        """A kind from the text of its data file. Raises ConfigError naming the kind and the key."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"The data of agent kind {name!r} is not TOML: {error}.") from error
        wanted = {each.name: str(each.type) for each in fields(cls) if each.name != "name"}
        for key, value in data.items():
            if key not in wanted:
                raise ConfigError(f"Agent kind {name!r} has an unknown key {key!r}.", f"Known: {', '.join(wanted)}.")
            if not _fits(value, wanted[key]):
                raise ConfigError(f"Agent kind {name!r}: {key} must be {_WORDS[wanted[key]]}.")
        if not data.get("command") or not data.get("title"):
            raise ConfigError(f"Agent kind {name!r} needs a title and a command.")
        given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return cls(name=name, **given)

    def model_environment(self, base: str) -> dict[str, str]:
        """`model_env` with the model API's base URL in place. Values may be JSON, so this is no format string."""
        return {key: value.replace("{base}", base) for key, value in self.model_env.items()}


_WORDS = {
    "str": "a string",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "tuple[str, ...]": "a list of strings",
    "dict[str, str]": "a table of strings",
    "dict[str, Any]": "a table",
}


def _fits(value: Any, wanted: str) -> bool:
    """Whether a TOML value has the type that the field of that annotation wants."""
    match wanted:
        case "tuple[str, ...]":
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case "dict[str, str]":
            return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        case "float":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"str": str, "bool": bool, "dict[str, Any]": dict}[wanted])


def kinds() -> list[str]:
    """The names of all agent kinds."""
    names = (entry.name for entry in (resources.files(__name__) / "data").iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))
