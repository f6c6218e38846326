"""No command in a sandbox makes a file that runs with the rights of the server's user (feature F4)."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.sandbox.test_isolation import SMALL, Shell
from tests.sandboxes import bubblewrap
from wonder_server.adapters.sandbox import syscalls


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    made = await bubblewrap(limits=SMALL)
    yield Shell(made, tmp_path / "conversation")
    await made.close()


SET_ID = """
import ctypes, errno, json, os, stat
system = ctypes.CDLL(None, use_errno=True).syscall
CREAT, TMPFILE = os.O_CREAT | os.O_WRONLY, os.O_TMPFILE | os.O_WRONLY
def raw(number, *arguments):
    ctypes.set_errno(0)
    system(number, *arguments)
    return ctypes.get_errno()
def outcome_of(act):
    try:
        act()
        return 0
    except OSError as problem:
        return problem.errno
open("mine", "w").close()
handle, here = os.open("mine", os.O_RDWR), os.open(".", os.O_RDONLY)
refused = {}
for name, bits in (("suid", 0o4755), ("sgid", 0o2755), ("both", 0o6777)):
    refused[f"chmod {name}"] = outcome_of(lambda: os.chmod("mine", bits))
    refused[f"fchmod {name}"] = outcome_of(lambda: os.fchmod(handle, bits))
    refused[f"fchmodat {name}"] = outcome_of(lambda: os.chmod("mine", bits, dir_fd=here))
    refused[f"fchmodat2 {name}"] = raw(452, -100, b"mine", bits, 0)
    refused[f"high {name}"] = raw(452, -100, b"mine", ctypes.c_ulong(1 << 32 | bits), 0)
    refused[f"creat {name}"] = outcome_of(lambda: os.open("new", CREAT, bits))
    refused[f"unnamed {name}"] = outcome_of(lambda: os.open(".", TMPFILE, bits))
    refused[f"mknod {name}"] = outcome_of(lambda: os.mknod("node", stat.S_IFREG | bits))
    refused[f"pipe {name}"] = outcome_of(lambda: os.mkfifo("pipe", bits))
missing = raw(437, -100, b"mine", 0, 0)
allowed = {
    "chmod": outcome_of(lambda: os.chmod("mine", 0o755)),
    "sticky": outcome_of(lambda: os.chmod(".", 0o1777)),
    "create": outcome_of(lambda: os.close(os.open("other", CREAT, 0o755))),
    "no file is made": raw(257, -100, b"mine", os.O_RDONLY, 0o6777) if os.uname().machine == "x86_64" else 0,
    "folder": outcome_of(lambda: os.mkdir("folder", 0o755)),
    "pipe": outcome_of(lambda: os.mkfifo("pipe", 0o600)),
    "unnamed": outcome_of(lambda: os.close(os.open(".", TMPFILE, 0o600))),
}
bits = [entry for entry in os.listdir(".") if os.stat(entry).st_mode & 0o6000]
print(json.dumps([refused, missing, allowed, bits]))
"""


async def test_no_file_gets_the_rights_of_the_servers_user(shell: Shell) -> None:
    if not syscalls.blocked_calls():
        pytest.skip("the numbers of this machine's calls are not known")
    (shell.where / "set_id.py").write_text(SET_ID)
    refused, missing, allowed, bits = json.loads(await shell.says("python3 set_id.py"))
    assert {name for name, answer in refused.items() if answer != errno.EPERM} == set()
    assert missing == errno.ENOSYS
    assert {name: answer for name, answer in allowed.items() if answer} == {} and bits == []
    packed = (
        "touch a && chmod 700 a && tar cf a.tar a && rm a && tar xf a.tar && cp -p a b && install -m 755 b c"
    )
    assert await shell.says(f"{packed} && stat -c %a a b c") == "700\n700\n755\n"
