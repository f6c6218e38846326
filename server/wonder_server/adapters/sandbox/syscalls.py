"""Calls to the kernel that no command of an agent needs, refused by a filter (seccomp).

None of them could be used to get out with no rights at all, were the kernel without fault. Most of its
faults are in what few programs use, so that is kept out of reach: loading code into the kernel, its keys, its
events, rings of input and output, and file systems. Debuggers, threads, sockets, all that is ordinary stay.

A filter is a program for the kernel's packet filter: eight bytes an instruction.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_AT_NUMBER, _AT_ARCHITECTURE = 0, 4
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_X32: Final = 0x40000000
"""From here on the numbers of x86-64's second set of calls."""

_BOTH: Final = {
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


def refused(machine: str = "") -> dict[str, int]:
    """The calls that are refused on this machine, by name; none where their numbers are not known."""
    _, calls = _REFUSED.get(machine or platform.machine(), (0, {}))
    return {**calls, **_BOTH} if calls else {}


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
    ]
    for number in sorted(refused(machine).values()):
        instructions += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    instructions.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)
