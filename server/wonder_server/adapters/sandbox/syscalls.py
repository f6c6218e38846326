"""Calls to the kernel that no command of an agent needs, refused by a filter (seccomp).

None of them could be used to get out with no rights at all, were the kernel without fault. Most of its
faults are in what few programs use, so that is kept out of reach: loading code into the kernel, its keys, its
events, rings of input and output, and file systems. Debuggers, threads, sockets, all that is ordinary stay.

Besides, no file gets the setuid or the setgid bit: on the host such a file would run with the rights of the
server's user.

A filter is a program for the kernel's packet filter: eight bytes an instruction.
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
"""Flags with which a file that is opened gets a mode: O_CREAT, and the bit of O_TMPFILE that is its own."""
_OPENAT2: Final = 437
"""Its mode lies in memory, where no filter can look. Programs that find it missing take `openat`."""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_X32: Final = 0x40000000
"""From here on the numbers of x86-64's second set of calls."""

_SOCKET_MASK: Final = {
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
"""By kind of machine: the kernel's word for it, and the numbers of calls."""

_ANY: Final = -1
"""In place of the flags' argument: the call sets a mode whatever its flags are."""

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
"""By kind of machine and name: a call's number, and which of its arguments are the flags and the mode."""


def blocked_calls(machine: str = "") -> dict[str, int]:
    """The calls that are refused on this machine, by name; none where their numbers are not known."""
    _, calls = _REFUSED.get(machine or platform.machine(), (0, {}))
    return {**calls, **_SOCKET_MASK} if calls else {}


def program(machine: str = "") -> bytes:
    """The filter for this machine, as ``bwrap --seccomp`` takes it; empty where there is none.

    A refused call fails with EPERM. Calls of another kind of machine, such as those of programs for 32 bits,
    fail with ENOSYS: their numbers mean something else.
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
    """Refuse a call whose mode has the setuid or the setgid bit, where its flags let the mode count."""
    checks = [
        (_LOAD, 0, 0, _low_half(mode)),
        (_ANY_BIT, 0, 1, _SET_ID),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    if flags != _ANY:
        # To the end of the checks, which allows.
        checks = [(_LOAD, 0, 0, _low_half(flags)), (_ANY_BIT, 0, len(checks) - 1, _CREATE_CALLS), *checks]
    return [(_EQUAL, 0, len(checks), number), *checks]


def _low_half(argument: int) -> int:
    """The place of an argument's low 32 bits; both machines keep them first."""
    return _AT_ARGUMENTS + 8 * argument
