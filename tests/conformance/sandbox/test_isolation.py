"""Isolation by bubblewrap (feature F4): each test tries to escape, or to take more than it gets.

Limits are small, so that a defect fails the test and does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.sandboxes import bubblewrap
from wonder_server.adapters.sandbox import cgroups, supervisor, syscalls
from wonder_server.adapters.sandbox.bubblewrap import BubblewrapSandbox
from wonder_server.adapters.sandbox.mounts import Host, Limits
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.sandbox import Command, Finished, Mount, SandboxSpec

SMALL = Limits(memory_bytes=128 << 20, processes=40, file_bytes=1 << 20, temporary_bytes=4 << 20)


class Shell:
    """Runs lines of a shell in one sandbox; ``where`` is the folder that it sees."""

    def __init__(self, sandbox: BubblewrapSandbox, folder: Path) -> None:
        folder.mkdir()
        self.sandbox, self.where = sandbox, folder
        self.place = SandboxSpec(folder=folder)

    async def run(self, line: str, *, place: SandboxSpec | None = None, timeout_ms: int = 20_000) -> Finished:
        command = Command(argv=("sh", "-c", line), timeout_ms=timeout_ms, merge_stderr=True)
        return await self.sandbox.run(self.where.name, place or self.place, command)

    async def says(self, line: str, *, place: SandboxSpec | None = None) -> str:
        return (await self.run(line, place=place)).stdout.head.decode("utf-8", "replace")


@pytest.fixture
async def sandbox() -> AsyncIterator[BubblewrapSandbox]:
    made = await bubblewrap(limits=SMALL)
    yield made
    await made.close()


@pytest.fixture
def shell(sandbox: BubblewrapSandbox, tmp_path: Path) -> Shell:
    return Shell(sandbox, tmp_path / "conversation")


# --- what is not to be seen ---------------------------------------------------------------------


async def test_the_servers_folder_cannot_be_read(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "catalog.db").write_text("the secret of the house")
    assert (await shell.run(f"cat {tmp_path}/data/catalog.db")).exit_code != 0
    assert (await shell.run(f"cat /work/../{tmp_path}/data/catalog.db /proc/1/root{tmp_path}/*")).exit_code
    found = await shell.says(
        f"find / -name catalog.db -not -path '/proc/*' 2>&1; ls -d {tmp_path} /home/* /work/.."
    )
    assert "catalog.db" not in found and "/home/" not in found.replace("'/home/*'", "")


async def test_another_conversation_is_not_there(shell: Shell, tmp_path: Path) -> None:
    other = Shell(shell.sandbox, tmp_path / "other")
    (other.where / "diary").write_text("of the other")
    running = asyncio.create_task(other.run("echo theirs > /tmp/theirs; sleep 60"))
    while not (await shell.says("ls /tmp")).startswith("home"):
        pass
    seen = await shell.says(
        f"cat {other.where}/diary ../other/diary /tmp/theirs /proc/*/cmdline; ls /tmp /work"
    )
    assert "of the other" not in seen and "theirs\n" not in seen and "sleep" not in seen
    assert (await shell.run("kill -9 -1; pkill sleep")).exit_code
    assert not running.done()
    running.cancel()


async def test_no_environment_of_the_host_is_there(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-house")
    fresh = Shell(shell.sandbox, shell.where.parent / "fresh")
    seen = await fresh.says("env; cat /proc/*/environ /proc/*/cmdline; set")
    assert "HOME=/tmp/home" in seen and "sk-of-the-house" not in seen and "PYTEST" not in seen
    own = await fresh.run("cat /proc/1/environ || readlink /proc/1/fd/0 || head -c 1 /proc/1/mem")
    assert own.exit_code, "process 1 is closed to those that it runs"


async def test_passwords_and_keys_of_the_system_are_not_there(shell: Shell) -> None:
    seen = await shell.says("ls /etc /etc/ssl; cat /etc/shadow; cat /etc/passwd; ls /root/.ssh /sys /boot")
    assert "shadow\n" not in seen.replace("/etc/shadow", "") and "private" not in seen
    assert len([line for line in seen.splitlines() if line.count(":") == 6]) == 2, "two users, both made up"


async def test_without_a_network_nothing_is_reached(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = (
            'python3 -c "import socket;'
            f" socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5); print('in')\""
        )
        assert "refused" in await shell.says(line)
    assert "unreachable" in await shell.says(line.replace("127.0.0.1", "192.0.2.1"))
    assert "PROXY" not in await shell.says("env")


async def test_sockets_without_a_file_are_not_reached(shell: Shell) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0wonder-{os.getpid()}")
        server.listen()
        seen = await shell.says(
            'python3 -c "import socket; s = socket.socket(socket.AF_UNIX);'
            f" s.connect(chr(0) + 'wonder-{os.getpid()}')\""
        )
    assert "refused" in seen


async def test_links_lead_nowhere(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the house")
    (shell.where / "planted").symlink_to(tmp_path / "secret")
    seen = await shell.says(
        "cat planted; ln -s /proc/1/root/etc up; ls up; ln -s / all; ls all/home all/root/.ssh"
    )
    assert "of the house" not in seen and "ssh_config" not in seen
    command = Command(argv=("pwd",), working_dir="all/usr", timeout_ms=20_000)
    assert (await shell.sandbox.run("conversation", shell.place, command)).stdout.head == b"/usr\n"


# --- what is not to be changed ------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "touch /usr/bin/planted",
        "touch /etc/planted",
        "touch /planted",
        "touch /dev/planted",
        "touch /run/planted",
        "touch /proc/planted",
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /proc",
        "mount -o remount,rw /usr",
        "umount /proc",
        "unshare --user true",
        "mknod /tmp/disk b 8 0",
        "chroot /tmp /bin/true",
        "hostname mine",
    ],
)
async def test_the_system_cannot_be_changed(shell: Shell, line: str) -> None:
    assert (await shell.run(line)).exit_code != 0


WRITABLE = """
import os
for folder, _, names in os.walk("/"):
    for name in names:
        path = os.path.join(folder, name)
        if folder.startswith(("/work", "/tmp", "/dev/shm")) or os.path.islink(path):
            continue
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))  # and nothing is written
        except OSError:
            continue
        print(path)
"""


async def test_no_file_beside_its_own_can_be_opened_to_be_written(shell: Shell) -> None:
    """On a server that runs as root, writing ``/proc/sys/kernel/core_pattern`` would own the machine."""
    (shell.where / "look.py").write_text(WRITABLE)
    devices = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"}
    found = set((await shell.says("python3 look.py")).split())
    assert "/dev/null" in found and not found - devices - {"/dev/pts/ptmx"}


async def test_there_are_no_rights_to_be_had(shell: Shell) -> None:
    seen = dict(line.split(":\t") for line in (await shell.says("cat /proc/self/status")).splitlines())
    assert seen["NoNewPrivs"] == "1"
    assert {seen[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}


CALLS = """
import ctypes, json, sys
call = ctypes.CDLL(None, use_errno=True).syscall
answers = {}
for name, number in json.loads(sys.argv[1]).items():
    ctypes.set_errno(0)
    call(number, -1, 0, 0, 0, 0, 0)
    answers[name] = ctypes.get_errno()
print(json.dumps(answers))
"""


async def test_calls_that_no_command_needs_are_refused_and_others_are_not(shell: Shell) -> None:
    calls = syscalls.blocked_calls()
    if not calls:
        pytest.skip("the numbers of this machine's calls are not known")
    (shell.where / "calls.py").write_text(CALLS)
    answers = json.loads(await shell.says(f"python3 calls.py '{json.dumps(calls)}'"))
    assert set(answers.values()) == {errno.EPERM}
    status = await shell.says("cat /proc/self/status")
    assert "Seccomp:\t2" in status
    ordinary = (
        "python3 -c 'import os, socket, threading; os.memfd_create(chr(97)); socket.socketpair()' && echo so"
    )
    assert await shell.says(ordinary) == "so\n"


def test_a_filter_is_made_for_each_machine_that_is_known() -> None:
    for machine in ("x86_64", "aarch64"):
        length, rest = divmod(len(syscalls.program(machine)), 8)
        assert rest == 0 and length > 7 + 2 * len(syscalls.blocked_calls(machine))
    assert syscalls.program("another") == b"" and not syscalls.blocked_calls("another")


async def test_a_mount_is_seen_where_it_is_said_and_nowhere_else(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "text").write_text("given")
    mounts = (
        Mount(source=tmp_path / "given", target="/mnt/read"),
        Mount(source=tmp_path / "given", target="/mnt/write", writable=True),
    )
    place = SandboxSpec(folder=shell.where, mounts=mounts)
    seen = await shell.says(
        "cat /mnt/read/text; touch /mnt/read/x; echo; touch /mnt/write/x && ls /mnt/read", place=place
    )
    assert "given" in seen and "Read-only" in seen and seen.endswith("text\nx\n")
    for target in ("/work/.git", "/etc", "mnt", "/", "/mnt/../usr", "/proc/x"):
        wrong = SandboxSpec(folder=shell.where, mounts=(Mount(source=tmp_path, target=target),))
        with pytest.raises(ValueError):
            await shell.run("true", place=wrong)


# --- what is not to be taken --------------------------------------------------------------------


async def test_a_fork_bomb_is_held(shell: Shell) -> None:
    finished = await shell.run("f() { f | f & }; f; sleep 60", timeout_ms=3_000)
    assert finished.stopped in ("processes", "memory", "timeout"), "the last where the kernel holds it"
    assert await shell.says("ls -d /proc/[0-9]* | wc -l") < "6", "nothing is left of it"


def test_where_the_server_is_root_s_a_control_group_counts_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    group = cgroups.ProcessGroup.create(5)
    if group is None:
        pytest.skip("no control group can be made here: not root, or none that may be written")
    folder = Path(group.procs_path).parent
    assert int((folder / "pids.max").read_text()) == 5 + cgroups.EXTRA_PROCESSES
    cgroups.remove_stale()
    assert folder.exists(), "a command may be about to use it"
    monkeypatch.setattr(cgroups, "STALE_AFTER_S", -60)
    cgroups.remove_stale()
    assert not folder.exists()
    group.remove()


async def test_a_sandbox_leaves_no_control_group(shell: Shell) -> None:
    await shell.run("true")
    await shell.sandbox.release("conversation")
    assert not own_groups()


def own_groups() -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/{cgroups.PREFIX}{os.getpid()}-*"))


THREADS = """
import os, threading, time
threading.stack_size(65536)
try:
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(60,)).start()
except RuntimeError:
    os._exit(3)
"""


async def test_threads_count_too(shell: Shell) -> None:
    (shell.where / "threads.py").write_text(THREADS)
    finished = await shell.run("exec python3 threads.py")
    assert finished.stopped == "processes" or finished.exit_code == 3


async def test_a_file_of_10_gb_is_not_written(shell: Shell) -> None:
    for line in (
        "dd if=/dev/zero of=big bs=1M count=10240",
        "truncate -s 10G big",
        "fallocate -l 10G big",
        "dd if=/dev/zero of=/tmp/big bs=1M count=10240",
        "dd if=/dev/zero of=/dev/shm/big bs=1M count=10240",
    ):
        assert (await shell.run(line)).exit_code != 0
    assert sum(file.stat().st_size for file in shell.where.iterdir()) <= SMALL.file_bytes
    lots = await shell.says("for i in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/zero > /tmp/$i; done")
    assert "No space left" in lots


async def test_memory_is_held_for_one_and_for_all_together(shell: Shell) -> None:
    assert "MemoryError" in await shell.says('python3 -c "bytearray(400 << 20)"')
    one = 'python3 -c "import time; x = bytearray(60 << 20); time.sleep(60)" & '
    assert (await shell.run(one * 3 + "wait")).stopped == "memory"


SHARED = """
import mmap, os, time
{take}
time.sleep(60)
"""


@pytest.mark.parametrize(
    "take",
    [
        "x = mmap.mmap(-1, 200 << 20); x.write(b'x' * (200 << 20))",
        "f = [os.memfd_create('x') for _ in range(300)]; [os.write(each, b'x' * (1 << 20)) for each in f]",
    ],
)
async def test_memory_of_unnamed_files_counts_too(shell: Shell, take: str) -> None:
    (shell.where / "take.py").write_text(SHARED.format(take=take))
    assert (await shell.run("python3 take.py")).stopped == "memory"


async def test_the_servers_folder_is_hidden_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "tools" / "data").mkdir(parents=True)
    (tmp_path / "tools" / "data" / "secret").write_text("of the house")
    (tmp_path / "tools" / "tool").write_text("a tool")
    host = Host(folders=(tmp_path / "tools",), hidden=(tmp_path / "tools" / "data",))
    sandbox = await bubblewrap(host=host)
    seen = await Shell(sandbox, tmp_path / "conversation").says(
        f"cd {tmp_path}/tools; cat tool data/*; ls data"
    )
    assert "a tool" in seen and "of the house" not in seen and "secret" not in seen
    await sandbox.close()


async def test_open_files_are_counted(shell: Shell) -> None:
    assert "Too many open files" in await shell.says(
        "python3 -c \"import os; [os.open('/dev/null', 0) for _ in range(2000)]\""
    )


@pytest.mark.parametrize("scarce", ["disk", "names", "memory"])
def test_what_runs_out_of_the_machine_ends_who_takes_it(monkeypatch: pytest.MonkeyPatch, scarce: str) -> None:
    limits = {"processes": 1 << 40, "memory_bytes": 1 << 60}
    machine = {"Shmem": 0, "MemAvailable": 1 << 39}
    run = supervisor.Run(None, 0, limits, {}, b"")  # type: ignore[arg-type]
    run.free_at_start, run.shared_at_start = (1 << 40, 1 << 40), 0
    monkeypatch.setattr(supervisor, "free_disk", lambda: (1 << 39, 1 << 39))
    monkeypatch.setattr(supervisor, "machine_memory", lambda: machine)
    monkeypatch.setattr(supervisor, "used_bytes", lambda _: supervisor.NOTICEABLE_BYTES + 1)
    assert run.exceeded_limit() == ""
    if scarce == "disk":
        monkeypatch.setattr(supervisor, "free_disk", lambda: (1 << 20, 1 << 39))
    elif scarce == "names":
        monkeypatch.setattr(supervisor, "free_disk", lambda: (1 << 39, 1 << 10))
    else:
        machine["MemAvailable"] = 1 << 10
    assert run.exceeded_limit() == ("memory" if scarce == "memory" else "disk")


# --- what is not to stay ------------------------------------------------------------------------


async def test_nothing_outlives_its_command(shell: Shell) -> None:
    await shell.run(
        "setsid sh -c 'trap \"\" TERM HUP; sleep 60' & nohup sleep 60 & (setsid setsid sleep 60 &) & echo"
    )
    assert "sleep" not in await shell.says("cat /proc/[0-9]*/comm")


async def test_who_holds_the_output_open_does_not_hold_up_the_command(shell: Shell) -> None:
    finished = await shell.run("setsid sleep 60 & echo done")
    assert finished.stdout.head == b"done\n" and finished.duration_ms < 20_000


@pytest.mark.parametrize(
    "line",
    [
        "kill -9 1; kill -STOP 1; kill -INT 1; kill -CHLD 1; kill -PIPE 1; kill -TERM 1; kill -ALRM 1",
        "prlimit --pid 1 --nofile=0:0 --nproc=0:0 --data=0:0",
        "renice 19 1; taskset -p 1 1; chrt -i -p 0 1",
        "echo -e 'R\\x00' > /proc/1/fd/0; echo x > /proc/1/fd/1",
        "exec sh -c 'kill -9 $$'",
        "kill -9 -1",
    ],
)
async def test_the_supervisor_goes_on_or_another_takes_its_place(shell: Shell, line: str) -> None:
    with contextlib.suppress(WonderError):  # it may be lost with what it did to its sandbox
        await shell.run(line)
    for _ in range(2):
        assert await shell.says("echo on") == "on\n"


async def test_what_is_in_tmp_stays_while_it_is_warm(shell: Shell) -> None:
    await shell.run("echo kept > /tmp/note")
    assert await shell.says("cat /tmp/note") == "kept\n"
    await shell.sandbox.release("conversation")
    assert "No such file" in await shell.says("cat /tmp/note")


async def test_an_idle_sandbox_ends(tmp_path: Path) -> None:
    sandbox = await bubblewrap(idle_timeout_s=0.01)
    shell = Shell(sandbox, tmp_path / "conversation")
    await shell.run("true")
    while sandbox.instance_count:  # noqa: ASYNC110 - as its users see it
        await asyncio.sleep(0.005)
    assert await shell.says("echo again") == "again\n"
    await sandbox.close()


async def test_there_are_only_so_many(tmp_path: Path) -> None:
    sandbox = await bubblewrap(max_instances=2)
    shells = [Shell(sandbox, tmp_path / name) for name in "abcde"]
    said = await asyncio.gather(*(shell.says("pwd; cat /etc/hostname; echo $USER") for shell in shells))
    assert len(said) == 5 and sandbox.instance_count <= 2
    await sandbox.close()
    assert sandbox.instance_count == 0


async def test_a_folder_that_was_made_anew_is_seen_anew(shell: Shell) -> None:
    await shell.run("echo old > note")
    (shell.where / "note").unlink()
    shell.where.rename(shell.where.with_name("gone"))
    shell.where.mkdir()
    (shell.where / "note").write_text("new")
    assert await shell.says("cat note") == "new"


SERVER = """
import asyncio, sys
from pathlib import Path
from wonder_server.adapters.sandbox.bubblewrap import BubblewrapSandbox
from wonder_server.ports.sandbox import Command, SandboxSpec

async def main():
    sandbox, place = BubblewrapSandbox(), SandboxSpec(folder=Path(sys.argv[1]))
    line = f"setsid sleep {sys.argv[2]} & echo ready; sleep {sys.argv[2]}"
    command = Command(argv=("sh", "-c", line), timeout_ms=60_000)
    await sandbox.run("k", place, command, lambda _: print("ready", flush=True))

asyncio.run(main())
"""


async def test_a_killed_server_leaves_no_process(shell: Shell, tmp_path: Path) -> None:
    mark = f"60.{os.getpid()}"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(tmp_path), mark,
        stdout=asyncio.subprocess.PIPE, env={"PYTHONPATH": str(ROOT / "server")},
    )  # fmt: skip
    assert server.stdout is not None and await server.stdout.readline() == b"ready\n"
    assert len(sandboxed(str(tmp_path), mark)) >= 3
    server.send_signal(signal.SIGKILL)
    await server.wait()
    latest = time.monotonic() + 60
    while left := sandboxed(str(tmp_path), mark):
        assert time.monotonic() < latest, left
        await asyncio.sleep(0.01)


async def test_a_cancelled_start_of_a_sandbox_leaves_no_process(tmp_path: Path) -> None:
    await (await bubblewrap()).close()
    for number in range(12):
        sandbox = BubblewrapSandbox()
        shell = Shell(sandbox, tmp_path / str(number))
        waiting = asyncio.create_task(shell.run("sleep 60"))
        await asyncio.wait({waiting}, timeout=number * 0.015)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await sandbox.close()
    assert not sandboxed(str(tmp_path))


def sandboxed(*marks: str) -> list[bytes]:
    """Command lines of processes that have one of these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if any(mark.encode() in line for mark in marks):
            found.append(line)
    return found


# --- where there is none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken", ["", "#!/bin/sh\necho No permissions to create new namespace >&2; exit 1\n"]
)
async def test_without_a_sandbox_commands_are_refused(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "bwrap"
    if broken:
        program.write_text(broken)
        program.chmod(0o755)
    sandbox = BubblewrapSandbox(program=str(program))
    for _ in range(2):
        with pytest.raises(WonderError) as problem:
            await sandbox.run("k", SandboxSpec(folder=tmp_path), Command(argv=("true",), timeout_ms=1000))
        fault = problem.value.fault
        assert fault.reason is Reason.SANDBOX_UNAVAILABLE and not fault.transient
        assert ("namespace" if broken else "not found") in fault.message
        assert "Install bubblewrap" in fault.message and "docs/shell.md" in fault.message
    await sandbox.close()


async def test_asyncio_alone_learns_how_a_cancelled_command_ended(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call of waitpid would reap the process, and asyncio would warn of an unknown process."""
    asked: list[int] = []
    monkeypatch.setattr(subprocess.Popen, "poll", lambda process: asked.append(process.pid))
    started = asyncio.Event()
    command = Command(argv=("sh", "-c", "echo begun; sleep 60"), timeout_ms=60_000, merge_stderr=True)
    running = asyncio.create_task(shell.sandbox.run("k", shell.place, command, lambda _: started.set()))
    async with asyncio.timeout(60):
        await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await shell.sandbox.release("k")
    assert await shell.says("echo on") == "on\n"
    assert asked == []


async def test_what_was_missing_may_be_installed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await bubblewrap()).close()
    sandbox = BubblewrapSandbox(program=str(tmp_path / "bwrap"))
    assert await sandbox.probe() is not None
    (tmp_path / "bwrap").symlink_to(str(shutil.which("bwrap")))
    assert await sandbox.probe() is not None, "not every command asks anew"
    sandbox._next_probe_at = 0
    assert await Shell(sandbox, tmp_path / "conversation").says("echo on") == "on\n"
    await sandbox.close()


async def test_a_sandbox_that_cannot_be_started_just_now_may_be_tried_again(shell: Shell) -> None:
    gone = SandboxSpec(folder=shell.where / "gone")
    with pytest.raises(NotStartedError):
        await shell.run("true", place=gone)
    assert await shell.says("echo on") == "on\n"
