"""The `a2a-serve` command. Each command group is one file, imported when it is used."""

from __future__ import annotations

from a2a_serve.cli.commands import Command, Commands

__all__ = ["main"]

main = Commands(
    "a2a-serve",
    {
        "init": Command("init:init", "Write a folder's settings from a template."),
        "start": Command("start:start", "Serve the coding agent of a project folder over A2A."),
        "status": Command("server:status", "Show whether a folder's server runs, and where it is reached."),
        "stop": Command("server:stop", "Stop a folder's server."),
        "logs": Command("logs:logs", "Show a folder's log."),
        "doctor": Command("doctor:doctor", "Check what a start needs, and say how to get it."),
        "send": Command("send:send", "Send a message to an agent and see it through, questions too.", client=True),
        "questions": Command("questions:questions", "List the questions that wait for an answer.", client=True),
        "answer": Command("questions:answer", "Answer a question.", client=True),
        "pair": Command("pair:pair", "Let others in."),
        "credential": Command("credential:credential", "Give a saved token to a client."),
        "config": Command("config:config", "Show the settings and where each comes from."),
        "image": Command("image:image", "Build, list and remove sandbox images."),
    },
)
"""The entry point, and the whole tree of commands."""
