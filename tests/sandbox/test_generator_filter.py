"""A generator can make every problem and read files; the kernel refuses it the rest."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from filter_attempts import ALLOW, FORBIDDEN, KILL, PROLOGUE, REFUSE, decision, where_filtered

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox import generator_filter
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool

ALLOWED = {
    "read a file",
    "list a folder",
    "make a pipe",
    "copy a descriptor",
    "close the reply",
    "read a descriptor",
    "write elsewhere",
    "start a thread",
    "sleep",
    "make memory executable",
    "change a limit",
}
"""What a verifier's child may not do and a generator may; `codeio` runs programs that do."""

MORE = {
    "write over a file": "os.open(path, os.O_RDWR)",
    "append to a file": "os.open(path, os.O_APPEND | os.O_WRONLY)",
    "empty a file": "os.truncate(path, 0)",
    "rename a file": "os.rename('/nonexistent', path)",
    "link to a file": "os.symlink('/etc/passwd', path)",
    "change a mode": "os.chmod('/nonexistent', 0o777)",
    "run a program": "subprocess.run(['true'])",
    "fork": "os.fork()",
    "signal every process": "os.kill(-1, 0)",
    "limit its parent": "libc_call('prlimit', parent, 4, 0, 0)",
    "connect": "libc_call('connect', 1, 0, 0)",
    "make a socket pair of datagrams": "socket.socketpair(type=socket.SOCK_DGRAM)",
    "leave its namespace": "libc_call('unshare', 0x10000000)",
}

ATTEMPT = """
import subprocess
from reasoning_gym_environment.sandbox import limits
assert limits.enter_generator() == []
try:
    {attempt}
except PermissionError:
    print("refused", end="")
"""


def run(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROLOGUE + script, str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)


@where_filtered
@pytest.mark.processes
@pytest.mark.parametrize("attempt", sorted({**FORBIDDEN, **MORE}.keys() - ALLOWED))
def test_a_generator_cannot(attempt: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = run(ATTEMPT.format(attempt={**FORBIDDEN, **MORE}[attempt]), path)
    assert (done.stdout, done.stderr, done.returncode) == ("refused", "", 0)
    assert not path.exists()


@where_filtered
@pytest.mark.processes
def test_what_the_library_needs_goes_on(tmp_path: Path) -> None:
    script = """
import asyncio, fractions, time
from reasoning_gym_environment.sandbox import limits
assert limits.enter_generator() == []
import xml.dom.minidom, _queue, numpy.random
assert open("/etc/passwd").read() and os.listdir("/") and os.path.exists("/") and os.getcwd()
found = []
thread = threading.Thread(target=lambda: found.append(1)); thread.start(); thread.join()
time.sleep(0.01)
assert asyncio.run(asyncio.sleep(0.01, 5)) == 5
print(found, end="")
"""
    done = run(script, tmp_path / "file")
    assert (done.stdout, done.stderr, done.returncode) == ("[1]", "", 0)


@where_filtered
@pytest.mark.processes
def test_a_generator_that_eats_memory_gets_an_error_and_goes_on(tmp_path: Path) -> None:
    script = """
from reasoning_gym_environment.sandbox import limits
assert limits.enter_generator() == []
assert len(bytearray(2**30)) == 2**30
try:
    bytearray(5 * 2**30)
except MemoryError:
    print("refused", end="")
"""
    done = run(script, tmp_path / "file")
    assert (done.stdout, done.stderr, done.returncode) == ("refused", "", 0)


UNKNOWN = 0x00050000 | 38

NUMBERS = {
    # openat, clone, clone3; then socket, kill, tgkill, ptrace, execve, execveat, unlinkat,
    # renameat2, mkdirat, io_uring_setup, bpf, unshare, setns, mount, prctl, setuid, connect
    "x86_64": (
        (257, 56, 435),
        (41, 62, 234, 101, 59, 322, 263, 316, 258, 425, 321, 272, 308, 165, 157, 105, 42),
    ),
    "aarch64": (
        (56, 220, 435),
        (198, 129, 131, 117, 221, 281, 35, 276, 34, 425, 280, 97, 268, 40, 167, 146, 203),
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_filter_of_each_architecture_decides_alike(name: str) -> None:
    program, audit = generator_filter.program(name), generator_filter._AUDIT[name]

    def decide(number: int, *arguments: int) -> int:
        return decision(program, audit=audit, number=number, arguments=arguments)

    (openat, clone, clone3), denied = NUMBERS[name]
    assert [decide(openat, 0, 0, flags) for flags in (0, 0x80000, 0x10000)] == [ALLOW] * 3
    assert {decide(openat, 0, 0, flags) for flags in (1, 2, 0x41, 0x42, 0x241)} == {REFUSE}
    assert [decide(clone, flags) for flags in (0x3D0F00, 0x7D0F00)] == [ALLOW] * 2
    assert {decide(clone, flags) for flags in (17, 0x01200011, 0x103D0F00, 0)} == {REFUSE}
    assert decide(clone3) == UNKNOWN
    assert {decide(number) for number in denied} == {REFUSE}
    assert decide(openat | 0x40000000) == KILL
    place = list(generator_filter._AUDIT).index(name)
    free = {numbers[place] for numbers in generator_filter._FREE.values()} - {None}
    checked = {numbers[place] for numbers, _ in generator_filter._CHECKED.values()}
    assert not free & checked
    allowed = {number for number in range(1024) if decide(number) == ALLOW}
    assert free <= allowed <= free | checked


@pytest.mark.processes
@pytest.mark.asyncio(loop_scope="session")
async def test_a_generator_under_its_limits_serves_and_says_what_is_not_enforced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
        with pytest.raises(GenerationError):
            await pool.generate(Recipe(task="gcd", seed=2, parameters={"max_value": "1"}))
        assert (await pool.generate(Recipe(task="figlet_font", seed=2))).question
    assert ("generator processes are contained but" in caplog.text) == (
        sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64")
    )
