"""The agent family's contract: an agent kind is data, one TOML file in `data/`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
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
    silence_limit: float = 0.0
    """Seconds without any update before a turn counts as hung; 0 for no limit of its own."""

    @classmethod
    def load(cls, name: str) -> AgentKind:
        """Read the kind's data file. Raises ConfigError naming the known kinds."""
        file = resources.files(__name__) / "data" / f"{name}.toml"
        if name not in kinds():
            known = ", ".join(kinds())
            raise ConfigError(f"There is no agent kind {name!r}.", f"Choose one of {known}, or set agent.command.")
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        for key in ("command", "unasked", "network", "folders"):
            if key in data:
                data[key] = tuple(data[key])
        return cls(name=name, **data)


def kinds() -> list[str]:
    """The names of all agent kinds."""
    names = (entry.name for entry in (resources.files(__name__) / "data").iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))
