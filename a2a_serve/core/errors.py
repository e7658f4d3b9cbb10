"""One tree of errors: each has a stable code, one sentence, and a hint that says what to do next."""

from __future__ import annotations


class ServeError(Exception):
    """An error that a person meets.

    `code` is stable (scripts and the reference name it), the sentence says what is wrong, `hint` what to do next.
    `exit_status` is what a host command exits with (sysexits, requirement H9).
    """

    code = "error"
    exit_status = 1

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.sentence} {self.hint}".strip()


class UsageError(ServeError):
    code = "usage"
    exit_status = 64


class StateCorrupt(ServeError):
    code = "state_corrupt"
    exit_status = 65


class SandboxUnavailable(ServeError):
    """The engine or the image cannot be had; new turns fail with this until it can."""

    code = "sandbox_unavailable"
    exit_status = 69


class ImageMissing(SandboxUnavailable):
    code = "image_missing"


class PortTaken(ServeError):
    code = "port_taken"
    exit_status = 73


class DirectoryNotWritable(ServeError):
    code = "directory_not_writable"
    exit_status = 73


class DiskFull(ServeError):
    """Nothing was stored; what was stored before is whole, and storing works again once there is room."""

    code = "disk_full"
    exit_status = 73


class StoreBusy(ServeError):
    """More is waiting to be stored than the server is willing to hold in memory."""

    code = "store_busy"


class AlreadyRunning(ServeError):
    code = "already_running"
    exit_status = 75


class ConfigError(ServeError):
    """A setting is wrong; the sentence names file, line and key."""

    code = "config"
    exit_status = 78


class WorkspaceRefused(ConfigError):
    """The folder must not be given to an agent (a home directory, `/`, a system folder)."""

    code = "workspace_refused"


class SchemaNewer(ServeError):
    code = "schema_newer"
    exit_status = 78


class NotRunning(ServeError):
    code = "not_running"
    exit_status = 3


class Unreachable(ServeError):
    """Another agent, called by its address, does not answer."""

    code = "unreachable"


class StreamLost(Unreachable):
    """An agent's answer broke off in the middle; its task goes on without us."""

    code = "stream_lost"


class TimedOut(ServeError):
    """A call took longer than the caller wanted to wait; its task goes on."""

    code = "timeout"


class RemoteError(ServeError):
    """Another agent refused a call, or answered what is not A2A."""

    code = "remote_error"


class SandboxBroken(ServeError):
    """What protects the host no longer holds for a running process: it must be replaced."""

    code = "sandbox_broken"


class AgentFailure(ServeError):
    """The agent's process or its protocol failed: this turn fails, the server goes on."""

    code = "agent_failed"


class AgentLoginRequired(AgentFailure):
    code = "agent_login_required"


class BadCredential(ServeError):
    """A credential was presented and is not valid; never a fall-back to anonymous."""

    code = "bad_credential"


class NotSignedIn(ServeError):
    """Nothing was presented where a credential is needed."""

    code = "not_signed_in"


class TooManySignIns(BadCredential):
    """A bad credential, from a peer that has presented too many of them. `retry_after` in seconds."""

    code = "too_many_sign_ins"

    def __init__(self, sentence: str, hint: str = "", *, retry_after: int) -> None:
        super().__init__(sentence, hint)
        self.retry_after = retry_after


class NotAllowed(ServeError):
    code = "not_allowed"


class QuestionClosed(ServeError):
    """The question has been answered, has expired, or its turn has ended."""

    code = "question_closed"


class QuestionUnknown(ServeError):
    code = "question_unknown"


class OptionUnknown(ServeError):
    code = "option_unknown"


class MessageReused(ServeError):
    """The same message id came again with another body."""

    code = "message_reused"
