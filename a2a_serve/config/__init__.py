"""Settings and the agent directory's paths: what `.a2a/config.yaml`, the environment and flags say, and from where."""

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
