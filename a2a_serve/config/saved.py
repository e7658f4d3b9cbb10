"""What is saved for the user across directories: which local server serves which origin, and tokens of remote ones."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from a2a_serve.core.errors import DirectoryNotWritable, NotSignedIn, UsageError

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """`scheme://host:port` in small letters, without a default port; `localhost` counts as 127.0.0.1.

    Raises UsageError for what is not an http or https URL.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in _DEFAULT_PORTS or not host:
        raise UsageError(f"{url!r} is not an http:// or https:// URL.", "For example http://127.0.0.1:41241.")
    host = "127.0.0.1" if host == "localhost" else host
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" if port in (None, _DEFAULT_PORTS[scheme]) else f"{scheme}://{name}:{port}"


def _home(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """As the XDG base directory specification: a relative path in the variable is ignored."""
    given = environment.get(variable, "")
    base = Path(given) if given.startswith("/") else Path(environment.get("HOME") or Path.home()) / default
    return base / "a2a-serve"


def _servers_file(environment: Mapping[str, str]) -> Path:
    return _home(environment, "XDG_STATE_HOME", ".local/state") / "servers.json"


def register_server(origin: str, root: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Remember that the server of `root` serves `origin`; entries of directories that are gone are dropped.

    Only a hint of whom to ask: the server itself says over its control socket whether it serves an origin.
    Raises DirectoryNotWritable.
    """
    path = _servers_file(environment)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(path.with_suffix(".lock"), "a", opener=_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = {key: value for key, value in _servers(path).items() if Path(value, ".a2a").is_dir()}
            _replace(path, json.dumps({**known, origin_of(origin): str(root)}, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise DirectoryNotWritable(f"Cannot write {path}: {error.strerror}.", "Check who owns it.") from error


def find_server(url: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The directory whose server was last known to serve the URL's origin."""
    found = _servers(_servers_file(environment)).get(origin_of(url))
    return Path(found) if found else None


def saved_token(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token saved for the URL's origin in `credentials.json` (`{origin: token}`), None when there is none.

    Raises NotSignedIn when the file is not the user's own or open to others: then it is not read.
    """
    path = _home(environment, "XDG_CONFIG_HOME", ".config") / "credentials.json"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotSignedIn(f"Cannot read {path}: {error.strerror}.", "Check who owns it.") from error
    with os.fdopen(descriptor, encoding="utf-8") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise NotSignedIn(f"{path} can be read by others, so it is not used.", f"chmod 600 {path}")
        try:
            saved = _texts(json.load(file))
        except (ValueError, RecursionError):
            raise NotSignedIn(f"{path} is damaged: it is not JSON.", 'It holds {"origin": "token"}.') from None
    tokens = {_origin_or_nothing(key): value for key, value in saved.items()}
    return tokens.get(origin_of(url)) or None


def _origin_or_nothing(url: str) -> str:
    try:
        return origin_of(url)
    except UsageError:
        return ""


def _servers(path: Path) -> dict[str, str]:
    try:
        return _texts(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}


def _texts(value: Any) -> dict[str, str]:
    items = value.items() if isinstance(value, dict) else ()
    return {key: text for key, text in items if isinstance(text, str)}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", opener=_private) as file:
        file.write(text)
    draft.replace(path)
