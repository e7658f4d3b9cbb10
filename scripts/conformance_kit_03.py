"""A pytest plugin that runs inside a copy of the official A2A test kit, 0.3: gives its clients a token, and its gRPC
client the address as cards write it. None of the kit's own code is changed.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

import pytest
from conformance_sign import Signer

UNSIGNED = "test_authentication_required_when_declared"
SIGNER = pytest.StashKey[Signer]()


def pytest_configure(config: pytest.Config) -> None:
    signer = config.stash[SIGNER] = Signer(config.getoption("--sut-url"))
    signer.install()
    signer.install_requests()
    _take_bare_addresses()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """The one test of what a caller without a token gets."""
    signer = item.config.stash[SIGNER]
    signer.enabled = item.name != UNSIGNED
    try:
        return (yield)
    finally:
        signer.enabled = True


def _take_bare_addresses() -> None:
    """The kit reads a gRPC address as a URL; on cards it is `host:port`."""
    client = import_module("tck.transport.grpc_client").GRPCClient
    made = client.__init__

    @functools.wraps(made)
    def take(self: Any, base_url: str, *rest: Any, **options: Any) -> None:
        made(self, base_url if "//" in base_url else f"http://{base_url}", *rest, **options)

    client.__init__ = take
