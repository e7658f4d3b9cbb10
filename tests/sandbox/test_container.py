from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from a2a_serve.sandbox import Limits, SandboxSpec
from a2a_serve.sandbox.container import container
from a2a_serve.sandbox.guards import Bind, Guards
from a2a_serve.sandbox.workspace import User

PROJECT = Path("/srv/project")
SPEC = SandboxSpec(
    owner="dir-1",
    boot="boot-7",
    user="alice-1234",
    workspace=PROJECT,
    home=Path("/state/homes/alice"),
    door=Path("/tmp/a2as-x"),
    image="a2a-serve/demo:1",
    command=("python3", "/opt/a2a-serve/demo.py"),
    environment={"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/root"},
    limits=Limits(memory=1 << 30, cpus=1.5, pids=100, tmp=1 << 20),
)
GUARDS = Guards(
    masks=(PROJECT / ".a2a", PROJECT / ".claude"),
    binds=(Bind(PROJECT / ".git", read_only=False), Bind(PROJECT / ".git/hooks", read_only=True)),
)


def bind(source: str, target: str, *, read_only: bool) -> dict[str, object]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


@pytest.mark.req("S1", "S2", "S3", "S5", "S8")
def test_the_whole_container() -> None:
    assert container(SPEC, User(1234, 1235), GUARDS) == {
        "Image": "a2a-serve/demo:1",
        "Cmd": ["python3", "/opt/a2a-serve/demo.py"],
        "User": "1234:1235",
        "WorkingDir": "/srv/project",
        "Env": ["EMAIL=agent@sandbox.invalid", "HOME=/home/agent", "PYTHONDONTWRITEBYTECODE=1", "USER=agent"],
        "Labels": {"a2a-serve.owner": "dir-1", "a2a-serve.boot": "boot-7", "a2a-serve.user": "alice-1234"},
        "Hostname": "sandbox",
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "HostConfig": {
            "Init": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "NetworkMode": "none",
            "IpcMode": "private",
            "ExtraHosts": ["a2a:127.0.0.1"],
            "Memory": 1 << 30,
            "MemorySwap": 1 << 30,
            "NanoCpus": 1_500_000_000,
            "PidsLimit": 100,
            "Tmpfs": {
                "/tmp": "rw,exec,nosuid,nodev,size=1048576,mode=1777",
                "/srv/project/.a2a": "ro,size=4k,mode=0555",
                "/srv/project/.claude": "ro,size=4k,mode=0555",
            },
            "Mounts": [
                bind("/srv/project", "/srv/project", read_only=False),
                bind("/srv/project/.git", "/srv/project/.git", read_only=False),
                bind("/srv/project/.git/hooks", "/srv/project/.git/hooks", read_only=True),
                bind("/state/homes/alice", "/home/agent", read_only=False),
                bind("/tmp/a2as-x", "/run/a2a", read_only=True),
                bind("/tmp/a2as-x/passwd", "/etc/passwd", read_only=True),
                bind("/tmp/a2as-x/group", "/etc/group", read_only=True),
            ],
            "LogConfig": {"Type": "none", "Config": {}},
            "AutoRemove": False,
        },
    }


def test_an_open_network_is_the_engines_bridge_and_never_the_hosts(spec: Callable[..., SandboxSpec]) -> None:
    body = container(spec(network="open"), User(1, 1), Guards())
    assert body["HostConfig"]["NetworkMode"] == "bridge"
    with pytest.raises(KeyError):
        container(spec(network="host"), User(1, 1), Guards())


def test_nothing_gives_more_rights_than_these() -> None:
    text = json.dumps(container(SPEC, User(0, 0), Guards()))
    assert not [
        word for word in ("docker.sock", "Privileged", "CapAdd", "Devices", "seccomp", "PidMode") if word in text
    ]
