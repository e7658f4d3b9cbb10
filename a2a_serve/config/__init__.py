"""Settings and the agent directory's paths: what `.a2a/config.yaml`, the environment and flags say, and from where.

Names are imported when used: a command that only asks a running server needs paths, and no settings (pydantic, YAML).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from a2a_serve.config.directory import AgentDir, Lock
    from a2a_serve.config.first import write_first_config
    from a2a_serve.config.layers import PREFIX, Flags, Loaded, choose_agent, load
    from a2a_serve.config.saved import find_server, origin_of, register_server, saved_token
    from a2a_serve.config.settings import (
        Agent,
        Card,
        Limits,
        Listen,
        ModelApi,
        Sandbox,
        Section,
        Settings,
        Skill,
        Turns,
    )

__all__ = [
    "PREFIX",
    "Agent",
    "AgentDir",
    "Card",
    "Flags",
    "Limits",
    "Listen",
    "Loaded",
    "Lock",
    "ModelApi",
    "Sandbox",
    "Section",
    "Settings",
    "Skill",
    "Turns",
    "choose_agent",
    "find_server",
    "load",
    "origin_of",
    "register_server",
    "saved_token",
    "write_first_config",
]

_PLACES = {
    "directory": ("AgentDir", "Lock"),
    "first": ("write_first_config",),
    "layers": ("PREFIX", "Flags", "Loaded", "choose_agent", "load"),
    "saved": ("find_server", "origin_of", "register_server", "saved_token"),
    "settings": (
        "Agent",
        "Card",
        "Limits",
        "Listen",
        "ModelApi",
        "Sandbox",
        "Section",
        "Settings",
        "Skill",
        "Turns",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
