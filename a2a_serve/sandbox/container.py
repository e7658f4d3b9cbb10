"""From a spec to the container that runs it: one pure function, in the terms of the engine's API.

Source: Docker Engine API v1.41, `POST /containers/create`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from a2a_serve.sandbox import SandboxSpec
from a2a_serve.sandbox.guards import Guards
from a2a_serve.sandbox.workspace import User

OWNER, BOOT, USER = "a2a-serve.owner", "a2a-serve.boot", "a2a-serve.user"
"""Labels: the agent directory, the server process that started it, and whose agent it is."""
HOME, DOOR = "/home/agent", "/run/a2a"
NETWORKS = {"none": "none", "open": "bridge"}
MASK = "ro,size=4k,mode=0555"


def container(spec: SandboxSpec, user: User, guards: Guards) -> dict[str, Any]:
    """The body of the create request. `user` is who the agent is inside; `guards` what is mounted over the workspace.

    Nothing secret may be in the spec: whoever may use the engine sees all of it.
    """
    return {
        "Image": spec.image,
        "Cmd": list(spec.command),
        "User": f"{user.uid}:{user.gid}",
        "WorkingDir": str(spec.workspace),
        "Env": _environment(spec),
        "Labels": {OWNER: spec.owner, BOOT: spec.boot, USER: spec.user},
        "Hostname": "sandbox",
        "OpenStdin": True,
        "StdinOnce": True,  # the agent's stdin ends with our connection, so it can end with us
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "HostConfig": {
            "Init": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "NetworkMode": NETWORKS[spec.network],
            "IpcMode": "private",
            "ExtraHosts": ["a2a:127.0.0.1"],
            "Memory": spec.limits.memory,
            "MemorySwap": spec.limits.memory,  # memory and swap together: no swap
            "NanoCpus": int(spec.limits.cpus * 1e9),
            "PidsLimit": spec.limits.pids,
            "Tmpfs": _tmpfs(spec, guards),
            "Mounts": _mounts(spec, guards),
            "LogConfig": {"Type": "none", "Config": {}},  # the engine would keep every byte of the conversation
            "AutoRemove": False,  # how it ended is asked afterwards
        },
    }


def _environment(spec: SandboxSpec) -> list[str]:
    """EMAIL is what git falls back to where the project names no author."""
    named = {"EMAIL": "agent@sandbox.invalid", **spec.environment, "HOME": HOME, "USER": "agent"}
    return [f"{name}={value}" for name, value in sorted(named.items())]


def _tmpfs(spec: SandboxSpec, guards: Guards) -> dict[str, str]:
    room = f"rw,exec,nosuid,nodev,size={spec.limits.tmp},mode=1777"  # exec: native modules are unpacked and run here
    return {"/tmp": room, **{str(path): MASK for path in guards.masks}}  # noqa: S108


def _mounts(spec: SandboxSpec, guards: Guards) -> list[dict[str, Any]]:
    return [
        _bind(spec.workspace, str(spec.workspace), read_only=False),
        *(_bind(each.path, str(each.path), read_only=each.read_only) for each in guards.binds),
        _bind(spec.home, HOME, read_only=False),
        _bind(spec.door, DOOR, read_only=True),
        _bind(spec.door / "passwd", "/etc/passwd", read_only=True),
        _bind(spec.door / "group", "/etc/group", read_only=True),
    ]


def _bind(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    """By `Mounts`, not `Binds`: a source that is missing is an error, and is not made as a folder of root's."""
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}
