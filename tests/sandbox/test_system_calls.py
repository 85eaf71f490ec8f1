"""Under its filter a process can do what its role needs; the kernel refuses the rest.

Every attempt runs in a process of its own, with its standard output as the reply. This file is
also the script of one test: it scores all tasks with and without the filter.
"""

import contextlib
import io
import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filter_attempts import (
    ALLOW,
    FORBIDDEN,
    KILL,
    PROLOGUE,
    REFUSE,
    decision,
    where_filtered,
)

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox import _limits
from reasoning_gym_environment.sandbox import _seccomp as system_calls
from reasoning_gym_environment.sandbox.pool import TaskPool

pytestmark = pytest.mark.processes

ATTEMPT = """
assert system_calls.filter_verifier_child(1) is None
try:
    {attempt}
except PermissionError:
    outcome = b"refused"
except RuntimeError as error:
    outcome = b"refused" if "start new thread" in str(error) else b"failed"
else:
    outcome = b"done"
os.write(1, outcome + b" %d" % sum(len("%.17g" % (i / 7)) > 0 for i in range(100)))
os._exit(0)
"""

FORK_EACH = """
import json, traceback
outcomes = {}
for name, attempt in json.loads(sys.argv[2]).items():
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        for descriptor in (1, 2):
            os.dup2(write_end, descriptor)
        os.closerange(3, write_end + 1)
        parent, own = os.getppid(), os.getpid()
        try:
            exec(attempt)
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(write_end)
    with open(read_end) as said:
        outcomes[name] = said.read(), os.waitpid(child, 0)[1]
print(json.dumps(outcomes))
"""
"""Runs each attempt in a process of its own: what that writes, also as errors, and its status."""


def run(script: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", PROLOGUE + script, str(path), *arguments]
    no_input = subprocess.DEVNULL
    return subprocess.run(
        command, stdin=no_input, capture_output=True, check=False, timeout=60
    )


FREE_FOR_A_ZYGOTE = {
    "close the reply",
    "read a descriptor",
    "write elsewhere",
    "start a process",
    "change a limit",
    "leave its session",
    "lift its protection",
}
"""What a zygote may do; its only descriptors are sockets that are connected already."""


@where_filtered
def test_a_zygote_reaches_no_other_process_and_its_children_have_the_narrower_filter(
    tmp_path: Path,
) -> None:
    script = """
assert system_calls.filter_zygote() is None
calls = [
    ("kill", parent, 9), ("kill", own, 9), ("killpg", 0, 9), ("tgkill", own, own, 9),
    ("prlimit", parent, 4, 0, 0), ("unshare", 0x10000000), ("prctl", 15, b"name", 0, 0, 0),
    ("syscall", 56, 0x10000000 | 17, 0, 0, 0, 0), ("dup2", 1, 5),
]
refused = 0
for call in calls:
    try:
        libc_call(*call)
    except PermissionError:
        refused += 1
read_end, write_end = (end.detach() for end in socket.socketpair())
child = os.fork()
if child == 0:
    os.setsid()
    missing = [_limits.protect_process(), system_calls.filter_verifier_child(write_end)]
    outcome = str(missing).encode()
    try:
        os.fork()
    except PermissionError:
        outcome += b" refused"
    os.write(write_end, outcome)
    os._exit(3)
os.close(write_end)
said = b"%d " % (len(calls) - refused)
while part := os.read(read_end, 100):
    said += part
os.write(1, said + b" %d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])); os._exit(0)
"""
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr) == (b"0 [None, None] refused 3", b"")
    assert done.returncode == 0


@where_filtered
def test_what_an_interpreter_needs_goes_on_under_the_filter_and_a_second_one_is_refused(
    tmp_path: Path,
) -> None:
    script = """
assert system_calls.filter_verifier_child(1) is None
big = [bytearray(2**20) for _ in range(64)]; del big
libc_call("madvise", page, 8192, 4)
assert time.monotonic() > 0 and time.time() > 0 and len(os.urandom(8)) == 8 and os.getpid() == own
lock = threading.Lock(); lock.acquire(); assert not lock.acquire(timeout=0.001)
os.write(1, b"scored " + str(system_calls.filter_verifier_child(2)).encode()); os._exit(7)
"""
    done = run(script, tmp_path / "file")
    assert (done.stderr, done.returncode) == (b"", 7)
    assert done.stdout.startswith(b"scored ")
    assert b"the kernel refuses it (Operation not permitted)" in done.stdout


@where_filtered
def test_a_protected_process_cannot_be_dumped_and_ends_with_its_parent(
    tmp_path: Path,
) -> None:
    script = """
def ask(option):
    value = ctypes.c_int(-1)
    result = libc.prctl(option, ctypes.byref(value), 0, 0, 0)
    return result if option == 3 else value.value
assert (ask(3), ask(2)) == (1, 0)
assert _limits.protect_process() is None
child = os.fork()
if child == 0:
    inherited = (ask(3), ask(2)) == (0, 0)
    os._exit(0 if inherited and not _limits.protect_process() and ask(2) == 9 else 1)
print(ask(3), ask(2), os.waitpid(child, 0)[1], end="")
"""
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr) == (b"0 9 0", b"")


FREE_FOR_A_GENERATOR = {
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

GENERATOR_ATTEMPT = """
import subprocess
from reasoning_gym_environment.sandbox import _limits as limits
assert limits.enter_generator() == []
try:
    {attempt}
except PermissionError:
    os.write(1, b"refused")
"""


READS_REQUESTS = """
requests, theirs = os.pipe()
os.write(theirs, b"asked")
""" + ATTEMPT.replace("child(1)", "child(1, requests_fd=requests)").replace(
    "os.write(1,", "assert os.read(requests, 9) == b'asked'\nos.write(1,"
)
OF_A_ZYGOTE = ATTEMPT.replace("filter_verifier_child(1)", "filter_zygote()")


@where_filtered
@pytest.mark.parametrize(
    ("script", "free", "more", "said"),
    [
        pytest.param(ATTEMPT, set(), {}, "refused 100", id="verifier's child"),
        pytest.param(READS_REQUESTS, set(), {}, "refused 100", id="persistent worker"),
        pytest.param(OF_A_ZYGOTE, FREE_FOR_A_ZYGOTE, {}, "refused 100", id="zygote"),
        pytest.param(
            GENERATOR_ATTEMPT, FREE_FOR_A_GENERATOR, MORE, "refused", id="generator"
        ),
    ],
)
def test_a_process_under_the_filter_cannot(
    script: str, free: set[str], more: dict[str, str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    forbidden = {
        name: code for name, code in (FORBIDDEN | more).items() if name not in free
    }
    attempts = {name: script.format(attempt=code) for name, code in forbidden.items()}
    done = run(FORK_EACH, path, json.dumps(attempts))
    assert (done.stderr, done.returncode) == (b"", 0)
    assert json.loads(done.stdout) == {name: [said, 0] for name in forbidden}
    assert not path.exists()


@where_filtered
def test_a_generator_does_what_the_library_needs_and_goes_on_where_memory_ends(
    tmp_path: Path,
) -> None:
    script = """
import asyncio, fractions, time
from reasoning_gym_environment.sandbox import _limits as limits
assert limits.enter_generator() == []
import xml.dom.minidom, _queue, numpy.random
assert open("/etc/passwd").read() and os.listdir("/") and os.path.exists("/") and os.getcwd()
found = []
thread = threading.Thread(target=lambda: found.append(1)); thread.start(); thread.join()
time.sleep(0.01)
assert asyncio.run(asyncio.sleep(0.01, 5)) == 5
assert len(bytearray(2**30)) == 2**30
try:
    bytearray(5 * 2**30)
except MemoryError:
    print(found, "refused", end="")
"""
    done = run(script, tmp_path / "file")
    assert (done.stdout, done.stderr, done.returncode) == (b"[1] refused", b"", 0)


ARCHITECTURES = sorted(system_calls.AUDIT)
ALLOWED_NUMBERS = json.loads(
    Path(__file__).with_name("allowed_system_calls.json").read_text()
)
"""Per architecture and role: the numbers that are allowed where all arguments are 0."""

UNKNOWN = 0x00050000 | 38


ALLOW_ALL = frozenset({"network", "processes", "write"})


class Filter:
    """The filter of a role on an architecture, as the kernel reads it."""

    def __init__(self, architecture: str, role: str) -> None:
        self._architecture = architecture
        self._program = {
            "child": lambda: system_calls.verifier_child_filter(architecture, 5),
            "persistent": lambda: system_calls.verifier_child_filter(
                architecture, 5, requests_fd=7
            ),
            "zygote": lambda: system_calls.zygote_filter(architecture),
            "generator": lambda: system_calls.generator_filter(architecture),
            "function": lambda: system_calls.function_filter(architecture, frozenset()),
            "looser": lambda: system_calls.function_filter(architecture, ALLOW_ALL),
        }[role]()

    def number(self, name: str) -> int:
        number = system_calls.SYSTEM_CALLS[name][
            list(system_calls.AUDIT).index(self._architecture)
        ]
        assert number is not None
        return number

    def decide(self, call: str | int, *arguments: int, audit: int | None = None) -> int:
        number = call if isinstance(call, int) else self.number(call)
        audit = audit or system_calls.AUDIT[self._architecture]
        return decision(self._program, audit=audit, number=number, arguments=arguments)

    def allowed(self, *arguments: int) -> set[int]:
        return {
            number for number in range(1100) if self.decide(number, *arguments) == ALLOW
        }


@pytest.mark.parametrize(
    "role", ["child", "persistent", "zygote", "generator", "function"]
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_role_is_allowed_these_system_calls_and_no_other(
    architecture: str, role: str
) -> None:
    rules = Filter(architecture, role)
    assert sorted(rules.allowed()) == ALLOWED_NUMBERS[architecture][role]
    [other] = {*ARCHITECTURES} - {architecture}
    for call in ("write", "mmap", "exit_group"):
        assert rules.decide(call, 5, audit=system_calls.AUDIT[other]) == KILL
        assert rules.decide(rules.number(call) | 0x40000000, 5) == KILL


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_child_writes_its_reply_alone_and_maps_nothing_executable(
    architecture: str,
) -> None:
    child = Filter(architecture, "child")
    assert [child.decide("write", fd) for fd in (5, 4, 2, 1)] == [
        ALLOW,
        REFUSE,
        REFUSE,
        REFUSE,
    ]
    for call in ("mmap", "mprotect"):
        assert child.decide(call, 0, 4096, 3) == ALLOW
        assert {
            child.decide(call, 0, 4096, protection) for protection in (4, 5, 7)
        } == {REFUSE}
    assert [n for n in range(128) if child.decide("madvise", 0, 1, n) == ALLOW] == [4]
    denied = ("openat", "clone", "prctl", "read", "socketpair", "wait4")
    assert {child.decide(call) for call in denied} == {REFUSE}
    zero = set(ALLOWED_NUMBERS[architecture]["child"])
    assert child.allowed(5) == zero | {child.number("write")}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_persistent_worker_reads_its_requests_alone(architecture: str) -> None:
    child, worker = Filter(architecture, "child"), Filter(architecture, "persistent")
    assert worker.allowed(7) - child.allowed(7) == {worker.number("read")}
    for descriptor in (0, 1, 2, 5, 6, 8):
        assert worker.allowed(descriptor) == child.allowed(descriptor)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_zygote_forks_protects_and_limits_itself_alone(architecture: str) -> None:
    zygote = Filter(architecture, "zygote")
    assert [zygote.decide("clone", flags) for flags in (17, 0x01200011)] == [
        ALLOW,
        ALLOW,
    ]
    more = [1 << bit for bit in (8, 13, 15, 17, 23, 25, 26, 27, 28, 29, 30)]
    assert {zygote.decide("clone", flags | 17) for flags in more} == {REFUSE}
    assert [zygote.decide("prctl", option) for option in (1, 4, 22, 38)] == [ALLOW] * 4
    assert {zygote.decide("prctl", n) for n in (0, 8, 15, 23, 24, 36, 47)} == {REFUSE}
    assert [zygote.decide("prlimit64", n) for n in (0, 1, 12345)] == [
        ALLOW,
        REFUSE,
        REFUSE,
    ]
    assert [zygote.decide("write", fd) for fd in (0, 3, 99)] == [ALLOW] * 3


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_generator_opens_files_for_reading_and_starts_threads(
    architecture: str,
) -> None:
    generator = Filter(architecture, "generator")
    assert [generator.decide("openat", 0, 0, n) for n in (0, 0x80000, 0x10000)] == [
        ALLOW
    ] * 3
    assert {generator.decide("openat", 0, 0, n) for n in (1, 2, 0x41, 0x42, 0x241)} == {
        REFUSE
    }
    assert [generator.decide("clone", flags) for flags in (0x3D0F00, 0x7D0F00)] == [
        ALLOW
    ] * 2
    assert {generator.decide("clone", n) for n in (17, 0x01200011, 0x103D0F00, 0)} == {
        REFUSE
    }
    assert generator.decide("clone3") == UNKNOWN


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_function_asks_for_limits_and_changes_none(architecture: str) -> None:
    function = Filter(architecture, "function")
    assert function.decide("prlimit64", 0, 9, 0, 1 << 40) == ALLOW
    assert {
        function.decide("prlimit64", 0, 9, 1 << bit) for bit in (0, 31, 32, 47)
    } == {REFUSE}
    assert {function.decide("openat", 0, 0, n) for n in (1, 2, 0x41, 0x42, 0x241)} == {
        REFUSE
    }
    assert function.decide("clone", 0x3D0F00) == ALLOW
    assert {function.decide("clone", n) for n in (17, 0x01200011, 0x103D0F00, 0)} == {
        REFUSE
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_a_function_may_do_at_most(architecture: str) -> None:
    """With every option it signals, traces, mounts and limits nothing, and leaves no group."""
    looser, function = Filter(architecture, "looser"), Filter(architecture, "function")
    assert looser.allowed() > function.allowed()
    assert [looser.decide("clone", n) for n in (17, 0x01200011, 0x3D0F00)] == [
        ALLOW
    ] * 3
    more = [1 << bit for bit in (8, 13, 15, 17, 23, 25, 26, 27, 28, 29, 30)]
    assert {looser.decide("clone", flags | 17) for flags in more} == {REFUSE}
    denied = ("setsid", "prctl")
    assert {looser.decide(call) for call in denied} == {REFUSE}
    assert {looser.decide("prlimit64", 0, 9, 1 << bit) for bit in (0, 47)} == {REFUSE}
    permitted = {
        "x86_64": {41, 59, 263, 316, 258, 42},
        "aarch64": {198, 221, 35, 276, 34, 203},
    }[architecture]
    forbidden = {*DENIED[architecture]} - permitted
    assert {looser.decide(number) for number in forbidden} == {REFUSE}
    setpgid, kill_by_descriptor = {"x86_64": (109, 424), "aarch64": (154, 424)}[
        architecture
    ]
    assert {looser.decide(n) for n in (setpgid, kill_by_descriptor)} == {REFUSE}
    # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY; each option alone allows less
    assert {looser.decide("fcntl", 0, n) for n in (8, 10, 15, 1024, 1026)} == {REFUSE}
    assert [looser.decide("fcntl", 0, n) for n in (0, 4, 7, 38, 1030)] == [ALLOW] * 5


# socket, kill, tgkill, ptrace, execve, execveat, unlinkat, renameat2, mkdirat,
# io_uring_setup, bpf, unshare, setns, pidfd_send_signal, mount, setuid, connect, process_vm_readv,
# process_vm_writev, pidfd_open, pidfd_getfd
DENIED = {
    "x86_64": (
        *(
            41,
            62,
            234,
            101,
            59,
            322,
            263,
            316,
            258,
            425,
            321,
            272,
            308,
            424,
            165,
            105,
            42,
            310,
        ),
        *(311, 434, 438),
    ),
    "aarch64": (
        *(
            198,
            129,
            131,
            117,
            221,
            281,
            35,
            276,
            34,
            425,
            280,
            97,
            268,
            424,
            40,
            146,
            203,
            270,
        ),
        *(271, 434, 438),
    ),
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_role_opens_sockets_signals_traces_mounts_or_changes_files(
    architecture: str,
) -> None:
    for role in ALLOWED_NUMBERS[architecture]:
        rules = Filter(architecture, role)
        for arguments in ((), (5,), (0, 2), (0, 0, 4)):
            assert {rules.decide(n, *arguments) for n in DENIED[architecture]} == {
                REFUSE
            }


@pytest.mark.nightly
@where_filtered
async def test_all_tasks_score_under_the_filter_as_without_it(
    problems: dict[str, list[Problem]], tmp_path: Path
) -> None:
    entries = {
        task: [problem.entry for problem in made] for task, made in problems.items()
    }
    (tmp_path / "entries").write_bytes(pickle.dumps(entries))
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path / "entries")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, check=False, timeout=300, env=env
    )
    assert done.returncode == 0, done.stderr[-2000:].decode()
    assert json.loads(done.stdout.splitlines()[-1]) == [[], len(problems)]


async def test_a_generator_under_its_limits_serves_and_says_what_is_not_enforced(
    pool: TaskPool,
) -> None:
    with pytest.raises(GenerationError):
        await pool.generate(Recipe(task="gcd", seed=2, parameters={"max_value": "1"}))
    assert (await pool.generate(Recipe(task="figlet_font", seed=2))).question
    assert any(
        gap.startswith("generator processes: ") for gap in pool.missing_protections
    ) == (sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"))


def score_or_nan(score: Callable[[str, Any], float], answer: str, entry: Any) -> float:
    with contextlib.suppress(Exception):
        return float(score(answer, entry))
    return math.nan


def scores(score: Callable[[str, Any], float], entries: list[bytes]) -> list[float]:
    """Of a right answer where there is one, and of wrong ones; NaN where the verifier raises."""
    return [
        score_or_nan(score, answer, entry)
        for entry in map(pickle.loads, entries)
        for answer in (entry["answer"], "x", "12345", "<answer>7</answer>")
    ]


def test_a_child_that_fails_to_enter_its_limits_is_a_gap() -> None:
    assert _limits._missing_in_child(lambda *_: []) == ""
    gap = _limits._missing_in_child(lambda *_: os._exit(3))
    assert gap == "a child that enters the limits ends with status 768"


def scores_in_a_child(
    verifiers: dict[str, Callable[[str, Any], float]],
    tasks: dict[str, list[bytes]],
    *,
    filtered: bool,
) -> dict[str, str]:
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        if filtered:
            assert system_calls.filter_verifier_child(write_end) is None
        with contextlib.redirect_stdout(io.StringIO()):  # the library prints
            found = {
                task: repr(scores(verifiers[task], made))
                for task, made in tasks.items()
            }
        os.write(write_end, json.dumps(found).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reply:
        found = json.load(reply)
    os.wait()
    return found


def main() -> None:
    """Print the tasks whose scores differ, and how many tasks were scored, as JSON."""
    from reasoning_gym_environment.sandbox._verifier_host import warm_up
    from reasoning_gym_environment.tasks.datasets import Datasets

    tasks = pickle.loads(Path(sys.argv[1]).read_bytes())
    datasets = Datasets()
    warm_up(datasets)
    verifiers = {task: datasets.get(task, {}).score_answer for task in tasks}
    free, confined = (
        scores_in_a_child(verifiers, tasks, filtered=filtered)
        for filtered in (False, True)
    )
    different = [
        (task, free[task], confined[task])
        for task in tasks
        if free[task] != confined[task]
    ]
    print(json.dumps([different, len(free)]))  # noqa: T201 - the output is what the test reads


if __name__ == "__main__":
    main()
