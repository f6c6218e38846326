"""A filter (seccomp) that blocks system calls which no command of an agent needs.

A process without rights could not escape through any of them if the kernel had no defects. Most of its
defects are in features that few programs use, so these stay blocked: loading code into the kernel, keys,
performance events, io_uring, file systems. Debuggers, threads, sockets and everything ordinary work.

Also, no file gets the setuid or setgid bit: on the host such a file would run with the rights of the server's
user.

A filter is a program for the kernel's packet filter, with eight bytes per instruction.
"""

from __future__ import annotations

import errno
import platform
import stat
import struct
from typing import Final

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16
_SET_ID: Final = stat.S_ISUID | stat.S_ISGID
_CREATE_CALLS: Final = 0o100 | 0o20000000
"""Flags of `open` that make the mode count: O_CREAT, and the bit that distinguishes O_TMPFILE."""
_OPENAT2: Final = 437
"""Its mode is in memory, which a filter cannot read. Programs fall back to `openat`."""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_X32: Final = 0x40000000
"""First number of x86-64's second set of calls."""

_COMMON_REFUSED: Final = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
}  # fmt: skip

_REFUSED: Final = {
    "x86_64": (
        0xC000003E,
        {
            "acct": 163, "add_key": 248, "bpf": 321, "delete_module": 176, "finit_module": 313,
            "init_module": 175, "ioperm": 173, "iopl": 172, "kexec_file_load": 320, "kexec_load": 246,
            "keyctl": 250, "mount": 165, "move_pages": 279, "perf_event_open": 298, "pivot_root": 155,
            "quotactl": 179, "reboot": 169, "request_key": 249, "setns": 308, "swapoff": 168, "swapon": 167,
            "syslog": 103, "umount2": 166, "userfaultfd": 323, "vhangup": 153,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "acct": 89, "add_key": 217, "bpf": 280, "delete_module": 106, "finit_module": 273,
            "init_module": 105, "kexec_file_load": 294, "kexec_load": 104, "keyctl": 219, "mount": 40,
            "move_pages": 239, "perf_event_open": 241, "pivot_root": 41, "quotactl": 60, "reboot": 142,
            "request_key": 218, "setns": 268, "swapoff": 225, "swapon": 224, "syslog": 116, "umount2": 39,
            "userfaultfd": 282, "vhangup": 58,
        },
    ),
}  # fmt: skip
"""By machine: the kernel's number of the architecture, and the blocked calls."""

_ANY: Final = -1
"""Instead of the argument with flags: the call sets a mode whatever its flags are."""

_MODES: Final = {
    "x86_64": {
        "open": (2, 1, 2), "creat": (85, _ANY, 1), "chmod": (90, _ANY, 1), "fchmod": (91, _ANY, 1),
        "mknod": (133, _ANY, 1), "openat": (257, 2, 3), "mknodat": (259, _ANY, 2), "fchmodat": (268, _ANY, 2),
        "fchmodat2": (452, _ANY, 2),
    },
    "aarch64": {
        "mknodat": (33, _ANY, 2), "fchmod": (52, _ANY, 1), "fchmodat": (53, _ANY, 2), "openat": (56, 2, 3),
        "fchmodat2": (452, _ANY, 2),
    },
}  # fmt: skip
"""By machine and name: a call's number, and the indexes of its arguments with flags and mode."""


def blocked_calls(machine: str = "") -> dict[str, int]:
    """Return the calls blocked on this machine, by name; empty for a machine with unknown numbers."""
    _, calls = _REFUSED.get(machine or platform.machine(), (0, {}))
    return {**calls, **_COMMON_REFUSED} if calls else {}


def program(machine: str = "") -> bytes:
    """Return the filter for this machine in the form of ``bwrap --seccomp``; empty if there is none.

    A blocked call fails with EPERM. Calls of another architecture, such as those of 32-bit programs, fail
    with ENOSYS, because their numbers have another meaning.
    """
    machine = machine or platform.machine()
    if machine not in _REFUSED:
        return b""
    architecture, _ = _REFUSED[machine]
    instructions = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_EQUAL, 0, 1, _OPENAT2),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    for number in sorted(blocked_calls(machine).values()):
        instructions += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    for number, flags, mode in _MODES[machine].values():
        instructions += _block_set_id(number, flags, mode)
    instructions.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


def _block_set_id(number: int, flags: int, mode: int) -> list[tuple[int, int, int, int]]:
    """Return checks that block a call whose mode has the setuid or setgid bit, if its flags make the mode
    count."""
    checks = [
        (_LOAD, 0, 0, _low_half(mode)),
        (_ANY_BIT, 0, 1, _SET_ID),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    if flags != _ANY:
        # Without these flags, jump to the last instruction, which allows the call.
        checks = [(_LOAD, 0, 0, _low_half(flags)), (_ANY_BIT, 0, len(checks) - 1, _CREATE_CALLS), *checks]
    return [(_EQUAL, 0, len(checks), number), *checks]


def _low_half(argument: int) -> int:
    """Return the offset of an argument's low 32 bits. Both architectures store them first."""
    return _AT_ARGUMENTS + 8 * argument
