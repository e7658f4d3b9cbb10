"""The agent directory: where everything lies, made with the right modes and owner, held by one server at a time."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from a2a_serve.core.errors import AlreadyRunning, DirectoryNotWritable, StateCorrupt, UsageError

KEY_BYTES = 32
_IGNORED = "# what the server keeps for itself; config.yaml is safe to commit\n/state/\n"


@dataclass(frozen=True, slots=True)
class AgentDir:
    """A project folder (`root`, absolute) and the paths below its `.a2a`."""

    root: Path

    @classmethod
    def at(cls, path: Path) -> AgentDir:
        """The directory that `path` names, links resolved. Raises UsageError when there is none that we may enter."""
        try:
            root = path.resolve(strict=True)
            is_directory = root.is_dir()
        except PermissionError as error:
            raise UsageError(f"You may not enter {str(path)!r}.", "Name a folder of your own.") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"There is no directory {str(path)!r}.", "Make it, or name another.") from error
        if not is_directory:
            raise UsageError(f"{str(root)!r} is not a directory.", "Name the project folder itself.")
        return cls(root)

    @property
    def own(self) -> Path:
        return self.root / ".a2a"

    @property
    def config(self) -> Path:
        return self.own / "config.yaml"

    @property
    def state(self) -> Path:
        """Only the server's user may look inside (0700)."""
        return self.own / "state"

    @property
    def database(self) -> Path:
        return self.state / "server.db"

    @property
    def control_socket(self) -> Path:
        return self.state / "control.sock"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def logs(self) -> Path:
        return self.state / "logs" / "server.log"

    @property
    def homes(self) -> Path:
        return self.state / "homes"

    @property
    def secret_key(self) -> Path:
        return self.state / "secret.key"

    def prepare(self) -> None:
        """Make `.a2a` and `.a2a/state`, as the project folder's owner where that is possible.

        Raises DirectoryNotWritable; a link in the place of one of them counts as that too.
        """
        try:
            owner = self.root.stat()
            _make(self.own, 0o755, owner)
            for path in (self.state, self.logs.parent, self.homes):
                _make(path, 0o700, owner)
            _write_once(self.own / ".gitignore", _IGNORED.encode(), 0o644, owner)
        except OSError as error:
            sentence = f"Cannot write to {self.own}: {error.strerror or error}."
            raise DirectoryNotWritable(sentence, "Check who owns the folder, and that its disk is writable.") from error

    def state_key(self) -> bytes:
        """The 32 random bytes from which the server derives its own secrets; made once, with the state directory.

        Raises StateCorrupt when the file is damaged, DirectoryNotWritable when it cannot be made or read.
        """
        try:
            key = self._read_key()
            if key is None:
                _write_once(self.secret_key, secrets.token_bytes(KEY_BYTES), 0o600, self.state.stat())
                key = self._read_key()
        except OSError as error:
            sentence = f"Cannot use {self.secret_key}: {error.strerror or error}."
            raise DirectoryNotWritable(sentence, "Check who owns it.") from error
        if key is None or len(key) != KEY_BYTES:
            hint = "Move it away to get a new one; saved local tokens then change."
            raise StateCorrupt(f"{self.secret_key} is damaged.", hint)
        return key

    def _read_key(self) -> bytes | None:
        try:
            descriptor = os.open(self.secret_key, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read(KEY_BYTES + 1)


def _make(path: Path, mode: int, owner: os.stat_result) -> None:
    """A directory with exactly `mode`; one that is there already is narrowed where it is wider and ours."""
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(0, f"{path.name} is not a directory") from None
        if found.st_mode & ~mode & 0o777:
            path.chmod(mode)
        return
    path.chmod(mode)
    _give(path, owner)


def _give(path: Path, owner: os.stat_result) -> None:
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _write_once(path: Path, content: bytes, mode: int, owner: os.stat_result) -> None:
    """A file with all of `content`, or none of it after a crash; one that is there already stays as it is."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(mode)
        _give(draft, owner)
        os.link(draft, path)
    except FileExistsError:
        pass  # another start was faster
    finally:
        draft.unlink(missing_ok=True)


class Lock:
    """Holds an agent directory while the block runs. The kernel lets go of it with the process, however that ends.

    The process id in the file is only information for people.
    """

    def __init__(self, directory: AgentDir) -> None:
        self._directory = directory
        self._descriptor = -1

    def __enter__(self) -> Lock:
        """Raises AlreadyRunning naming the first server's process, DirectoryNotWritable."""
        path = self._directory.lock
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise DirectoryNotWritable(f"Cannot open {path}: {error.strerror}.", "Check who owns it.") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            first = _pid_in(descriptor)
            os.close(descriptor)
            who = f" (process {first})" if first else ""
            hint = f"`a2a-serve stop {self._directory.root}` ends it."
            raise AlreadyRunning(f"A server runs already in {self._directory.root}{who}.", hint) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def _pid_in(descriptor: int) -> str:
    text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return text if text.isdigit() else ""
