"""A process under the filter can compute, write its reply and end; the kernel refuses the rest.

Every attempt runs in an interpreter of its own, with its standard output as the reply. This
file is also the script of the last test: it scores all tasks with and without the filter.
"""

import contextlib
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filter_attempts import ALLOW, FORBIDDEN, KILL, PROLOGUE, REFUSE, decision, where_filtered

from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.sandbox import seccomp

pytestmark = pytest.mark.processes

ATTEMPT = """
assert seccomp.install(1) is None
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


def run(script: str, path: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", PROLOGUE + script, str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


@where_filtered
@pytest.mark.parametrize("attempt", FORBIDDEN)
def test_a_process_under_the_filter_cannot(attempt: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = run(ATTEMPT.format(attempt=FORBIDDEN[attempt]), path)
    assert (done.stdout, done.stderr, done.returncode) == (b"refused 100", b"", 0)
    assert not path.exists()


@where_filtered
@pytest.mark.parametrize("attempt", FORBIDDEN)
def test_a_process_that_reads_its_requests_cannot(attempt: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    script = """
requests, theirs = os.pipe()
os.write(theirs, b"asked")
""" + ATTEMPT.replace("seccomp.install(1)", "seccomp.install(1, requests_fd=requests)").replace(
        "os.write(1,", "assert os.read(requests, 9) == b'asked'\nos.write(1,"
    )
    done = run(script.format(attempt=FORBIDDEN[attempt]), path)
    assert (done.stdout, done.stderr, done.returncode) == (b"refused 100", b"", 0)
    assert not path.exists()


FREE_FOR_A_PARENT = {
    "make a pipe",
    "close the reply",
    "read a descriptor",
    "write elsewhere",
    "start a process",
    "change a limit",
    "leave its session",
    "lift its protection",
}
"""What a parent of children may do; it has no descriptor but pipes to them."""


@where_filtered
@pytest.mark.parametrize("attempt", sorted(FORBIDDEN.keys() - FREE_FOR_A_PARENT))
def test_a_parent_of_children_under_its_filter_cannot(attempt: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    script = ATTEMPT.replace("seccomp.install(1)", "seccomp.install_for_parent()")
    done = run(script.format(attempt=FORBIDDEN[attempt]), path)
    assert (done.stdout, done.stderr, done.returncode) == (b"refused 100", b"", 0)
    assert not path.exists()


@where_filtered
def test_a_parent_of_children_cannot_kill_nor_limit_others_nor_leave_its_namespaces(
    tmp_path: Path,
) -> None:
    script = """
assert seccomp.install_for_parent() is None
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
os.write(1, b"%d" % (len(calls) - refused)); os._exit(0)
"""
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == (b"0", b"", 0)


@where_filtered
def test_a_parent_of_children_forks_them_and_they_have_the_narrower_filter(tmp_path: Path) -> None:
    script = """
assert seccomp.install_for_parent() is None
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    outcome = str([seccomp.undumpable(), seccomp.install(write_end)]).encode()
    try:
        os.fork()
    except PermissionError:
        outcome += b" refused"
    os.write(write_end, outcome)
    os._exit(3)
os.close(write_end)
said = b""
while part := os.read(read_end, 100):
    said += part
os.write(1, said + b" %d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])); os._exit(0)
"""
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr) == (b"[None, None] refused 3", b"")


@where_filtered
def test_what_an_interpreter_needs_goes_on_under_the_filter(tmp_path: Path) -> None:
    script = """
assert seccomp.install(1) is None
big = [bytearray(2**20) for _ in range(64)]; del big
libc_call("madvise", page, 8192, 4)
assert time.monotonic() > 0 and time.time() > 0 and len(os.urandom(8)) == 8 and os.getpid() == own
lock = threading.Lock(); lock.acquire(); assert not lock.acquire(timeout=0.001)
os.write(1, b"scored"); os._exit(7)
"""
    done = run(script, tmp_path / "file")
    assert (done.stdout, done.stderr, done.returncode) == (b"scored", b"", 7)


@where_filtered
def test_the_filter_cannot_be_taken_off_and_a_second_one_is_refused(tmp_path: Path) -> None:
    script = """
assert seccomp.install(1) is None
os.write(1, str(seccomp.install(2)).encode()); os._exit(0)
"""
    assert b"the kernel refuses it (Operation not permitted)" in run(script, tmp_path).stdout


@where_filtered
def test_a_protected_process_cannot_be_dumped_and_ends_with_its_parent(tmp_path: Path) -> None:
    script = """
def ask(option):
    value = ctypes.c_int(-1)
    result = libc.prctl(option, ctypes.byref(value), 0, 0, 0)
    return result if option == 3 else value.value
assert (ask(3), ask(2)) == (1, 0)
assert seccomp.undumpable() is None
child = os.fork()
if child == 0:
    os._exit(0 if (ask(3), ask(2)) == (0, 0) and not seccomp.undumpable() and ask(2) == 9 else 1)
print(ask(3), ask(2), os.waitpid(child, 0)[1], end="")
"""
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr) == (b"0 9 0", b"")


NUMBERS = {
    # write, mmap, mprotect, exit_group; then openat, socket, clone, kill, ptrace, prctl and
    # process_vm_readv
    "x86_64": (1, 9, 10, 231, 257, 41, 56, 62, 101, 157, 310),
    "aarch64": (64, 222, 226, 94, 56, 198, 220, 129, 117, 167, 270),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_filter_of_each_architecture_decides_alike(name: str) -> None:
    machine = seccomp._MACHINES[name]
    program = seccomp._all_but_write(machine) + seccomp._write_only(machine, 5)

    def decide(number: int, *arguments: int) -> int:
        return decision(program, audit=machine.audit, number=number, arguments=arguments)

    write, mmap, mprotect, exit_group, *denied = NUMBERS[name]
    assert [decide(write, fd) for fd in (5, 4, 2, 1)] == [ALLOW, REFUSE, REFUSE, REFUSE]
    for number in (mmap, mprotect):
        assert decide(number, 0, 4096, 3) == ALLOW
        assert {decide(number, 0, 4096, protection) for protection in (4, 5, 7)} == {REFUSE}
    assert decide(exit_group) == ALLOW
    assert [advice for advice in range(128) if decide(machine.madvise, 0, 1, advice) == ALLOW] == [
        4
    ]
    assert {decide(number) for number in denied} == {REFUSE}
    other = seccomp._MACHINES["aarch64" if name == "x86_64" else "x86_64"]
    assert decision(program, audit=other.audit, number=write, arguments=(5,)) == KILL
    assert decide(write | 0x40000000, 5) == KILL
    allowed = {number for number in range(1024) if decide(number, 5) == ALLOW}
    assert allowed == {write, *machine.maps, *machine.free}


@pytest.mark.parametrize("name", NUMBERS)
def test_one_that_reads_its_requests_may_read_from_that_descriptor_alone(name: str) -> None:
    machine = seccomp._MACHINES[name]
    beginning, end = seccomp._all_but_write(machine), seccomp._write_only(machine, 5)

    def allowed(program: bytes, *arguments: int) -> set[int]:
        audit = machine.audit
        return {
            number
            for number in range(1024)
            if decision(program, audit=audit, number=number, arguments=arguments) == ALLOW
        }

    without, with_it = beginning + end, beginning + seccomp._reads(machine, 7) + end
    assert allowed(with_it, 7) - allowed(without, 7) == {machine.read}
    for descriptor in (0, 1, 2, 5, 6, 8):
        assert allowed(with_it, descriptor) == allowed(without, descriptor)


# clone, prctl, prlimit64, write; then openat, socket, kill, tgkill, ptrace, execve, unshare,
# clone3, setns, pidfd_send_signal, dup, setuid, mount, process_vm_readv
OF_PARENTS = {
    "x86_64": (56, 157, 302, 1, 257, 41, 62, 234, 101, 59, 272, 435, 308, 424, 32, 105, 165, 310),
    "aarch64": (
        220,
        167,
        261,
        64,
        56,
        198,
        129,
        131,
        117,
        221,
        97,
        435,
        268,
        424,
        23,
        146,
        40,
        270,
    ),
}


@pytest.mark.parametrize("name", OF_PARENTS)
def test_the_filter_of_parents_decides_alike_on_each_architecture(name: str) -> None:
    machine = seccomp._MACHINES[name]
    program = seccomp._all_but_write(machine) + seccomp._forks_and_waits(machine)

    def decide(number: int, *arguments: int) -> int:
        return decision(program, audit=machine.audit, number=number, arguments=arguments)

    clone, prctl, prlimit, write, *denied = OF_PARENTS[name]
    assert [decide(clone, flags) for flags in (17, 0x01200011)] == [ALLOW, ALLOW]
    more = [1 << bit for bit in (8, 13, 15, 17, 23, 25, 26, 27, 28, 29, 30)]
    assert {decide(clone, flags | 17) for flags in more} == {REFUSE}
    assert [decide(prctl, option) for option in (1, 4, 22, 38)] == [ALLOW] * 4
    assert {decide(prctl, option) for option in (0, 8, 15, 23, 24, 36, 47)} == {REFUSE}
    assert [decide(prlimit, pid) for pid in (0, 1, 12345)] == [ALLOW, REFUSE, REFUSE]
    assert [decide(write, fd) for fd in (0, 3, 99)] == [ALLOW] * 3
    assert {decide(number) for number in denied} == {REFUSE}
    allowed = {number for number in range(1024) if decide(number) == ALLOW}
    assert allowed == {write, clone, prlimit, *machine.maps, *machine.free, *machine.parents}


@where_filtered
@pytest.mark.asyncio(loop_scope="session")
async def test_all_tasks_score_under_the_filter_as_without_it(
    problems: dict[str, list[Problem]], tmp_path: Path
) -> None:
    entries = {task: [problem.entry for problem in made] for task, made in problems.items()}
    (tmp_path / "entries").write_bytes(pickle.dumps(entries))
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path / "entries")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, check=False, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-2000:].decode()
    *different, count = done.stdout.decode().splitlines()[-20:]
    assert (different, int(count)) == ([], len(problems))


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


def scores_in_a_child(
    score: Callable[[str, Any], float], entries: list[bytes], *, filtered: bool
) -> str:
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        if filtered:
            assert seccomp.install(write_end) is None
        os.write(write_end, repr(scores(score, entries)).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reply:
        text = reply.read().decode()
    os.wait()
    return text


def main() -> None:
    """Print the tasks whose scores differ, then how many tasks there were."""
    from reasoning_gym_environment.sandbox.verifier_host import warm_up
    from reasoning_gym_environment.tasks.datasets import Datasets

    tasks = pickle.loads(Path(sys.argv[1]).read_bytes())
    datasets = Datasets()
    warm_up(datasets)
    compared = 0
    for task, entries in tasks.items():
        score = datasets.get(task, {}).score_answer
        free, confined = (
            scores_in_a_child(score, entries, filtered=filtered) for filtered in (False, True)
        )
        if not free or free != confined:
            print(task, free, confined)  # noqa: T201 - the output is what the test reads
        compared += 1
    print(compared)  # noqa: T201 - the output is what the test reads


if __name__ == "__main__":
    main()
