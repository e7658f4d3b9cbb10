"""A second seccomp filter on top of the engine's default: no setuid or setgid bit can be made, and no io_uring.

A container that runs as the workspace's owner could otherwise leave a setuid program in the workspace, for the host.
The calls whose mode or operation lies behind a pointer (openat2, io_uring) or has no name here (fchmodat2) answer
ENOSYS, so that callers fall back to the plain ones. Needs no_new_privs, which the container has.
"""

import errno
import os
import stat

import seccomp
from seccomp import ERRNO, MASKED_EQ, Arg

BITS = (stat.S_ISUID, stat.S_ISGID)
MODE = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""Calls that set a mode, and which argument it is."""
OPEN = {"open": (1, 2), "openat": (2, 3)}
"""Calls that set a mode when they create: which argument the flags are, and which the mode."""
CREATING = (os.O_CREAT, 0o20000000)  # and __O_TMPFILE, whose file can be linked to a name later
REFUSED = ("openat2", "io_uring_setup", "io_uring_enter", "io_uring_register")
FCHMODAT2 = 452  # on every architecture; newer than the library's table


def seal() -> None:
    """Load the filter into this process; all its children inherit it."""
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    rules.set_attr(seccomp.Attr.ACT_BADARCH, ERRNO(errno.ENOSYS))
    for bit in BITS:
        for name, mode in MODE.items():
            rules.add_rule(ERRNO(errno.EPERM), name, Arg(mode, MASKED_EQ, bit, bit))
        for name, (flags, mode) in OPEN.items():
            for flag in CREATING:
                made = Arg(flags, MASKED_EQ, flag, flag)
                rules.add_rule(ERRNO(errno.EPERM), name, made, Arg(mode, MASKED_EQ, bit, bit))
    for call in (*REFUSED, FCHMODAT2):
        rules.add_rule(ERRNO(errno.ENOSYS), call)
    rules.load()
