"""Functions that tests contain: right ones, and many that misbehave."""

import asyncio
import contextlib
import ctypes
import json
import mmap
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

CALLS: list[str] = []
"""Texts of calls in this process: warm-up's, and where nothing is contained."""


def equal(text: str, data: Any) -> float:
    """1 if the text is the data."""
    CALLS.append(text)
    return float(text == data)


def evaluate(text: str, data: Any) -> float:
    """What nobody should write: the text runs."""
    return float(eval(text) == data)


def executes(text: str, data: Any) -> float:
    """Run the text, and return 1 if it raises nothing."""
    exec(text, {})
    return 1.0


def works(text: str, data: Any) -> float:
    """Use the processor for so many seconds, in so many threads; or only wait."""
    kind, seconds, threads = data

    def spin() -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    if kind == "waits":
        time.sleep(seconds)
    elif threads == 1:
        spin()
    else:
        spinning = [threading.Thread(target=spin) for _ in range(threads)]
        for thread in spinning:
            thread.start()
        for thread in spinning:
            thread.join()
    return 1.0


SHARED = mmap.mmap(-1, 4096)
LOCK = multiprocessing.Lock()


def remembers(text: str, data: Any) -> float:
    """1 if no earlier call has left a mark in the memory that the import shares."""
    before = SHARED[0], LOCK.acquire(timeout=1)
    SHARED[0] = 1
    return float(before == (0, True))


def forks_without_end(text: str, data: Any) -> float:
    """Start as many processes as it can; needs `processes`."""
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def starts_threads_without_end(text: str, data: Any) -> float:
    threading.stack_size(32768)
    while True:
        with contextlib.suppress(RuntimeError, MemoryError):
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def runs_threads(text: str, data: Any) -> float:
    """Run as many threads as the data says at a time, each of which allocates a megabyte."""
    barrier = threading.Barrier(data)

    def allocate(number: int) -> int:
        barrier.wait(30)
        block = bytearray(2**20)
        barrier.wait(30)
        return len(block)

    with ThreadPoolExecutor(data) as pool:
        return float(sum(pool.map(allocate, range(data))) == data * 2**20)


def earlier_calls(text: str, data: Any) -> int:
    """How many calls this process has seen before: those of the warm-up."""
    CALLS.append(text)
    return len(CALLS) - 1


async def coroutine(text: str, data: Any) -> float:
    return 1.0


def naps(text: str, data: Any) -> float:
    time.sleep(float(text))
    return 1.0


def with_a_child(text: str, data: Any) -> float:
    """Say which process it is in a file, then hang; needs `processes` and `write`."""
    child = subprocess.Popen(["sleep", "1000"])
    Path(data).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(1000)
    return 1.0


def loops() -> NoReturn:
    while True:
        pass


def catches_everything() -> NoReturn:
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(1000)


def allocates_bit_by_bit() -> NoReturn:
    kept = []
    while True:
        kept.append(bytearray(2**20))


def recurses(depth: int = 0) -> Any:
    return recurses(depth + 1)


def overflows_the_stack() -> Any:
    sys.setrecursionlimit(10**9)
    text = "[" * 10**6
    with contextlib.suppress(RecursionError):  # of Python 3.13, which refuses in time
        json.loads(text + "]" * 10**6)
    return ctypes.string_at(0)


class HostileError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def throw(error: Exception) -> NoReturn:
    raise error


def closes_everything() -> float:
    os.closerange(0, 1000)
    return 1.0


def writes_to_every_descriptor() -> float:
    for descriptor in range(3, 100):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\xff" * 10_000)
    return 1.0


MISBEHAVIORS: dict[str, Callable[[], Any]] = {
    "loops": loops,
    "computes_in_c": lambda: 7 ** (7**12),
    "sleeps": lambda: time.sleep(1000),
    "catches_everything": catches_everything,
    "waits_for_input": lambda: sys.stdin.read() or loops(),
    "allocates": lambda: len([0] * 10**9),
    "allocates_bit_by_bit": allocates_bit_by_bit,
    "recurses": recurses,
    "overflows_the_stack": overflows_the_stack,
    "reads_a_null_pointer": lambda: ctypes.string_at(0),
    "exits": lambda: sys.exit(0),
    "exits_at_once": lambda: os._exit(0),
    "raises": lambda: throw(ValueError("no \x1b[31mnumber\u202e in it")),
    "raises_without_text": lambda: throw(HostileError()),
    "raises_a_novel": lambda: throw(ValueError("é" * 10**6)),
    "forks": os.fork,
    "runs_a_program": lambda: subprocess.run(["true"]).returncode,
    "kills_its_parent": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "kills_itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kills_everybody": lambda: os.kill(-1, signal.SIGKILL),
    "leaves_its_session": os.setsid,
    "raises_its_limits": lambda: resource.setrlimit(
        resource.RLIMIT_AS, [resource.RLIM_INFINITY] * 2
    ),
    "writes_a_file": lambda: Path("/tmp/contained-function-wrote").write_text("x"),
    "removes_a_file": lambda: Path(__file__).unlink(),
    "makes_a_folder": tempfile.mkdtemp,
    "changes_a_mode": lambda: Path(__file__).chmod(0o777),
    "opens_a_socket": lambda: socket.create_connection(("127.0.0.1", 9)),
    "closes_everything": closes_everything,
    "closes_everything_and_waits": lambda: closes_everything() and time.sleep(1000),
    "writes_to_every_descriptor": writes_to_every_descriptor,
}

RETURNS: dict[str, Any] = {
    "nothing": None,
    "text": "1.0",
    "bytes": b"1",
    "NaN": float("nan"),
    "infinity": float("inf"),
    "a huge number": 10**400,
    "too much": 2.0,
    "too little": -0.5,
    "a list": [1.0],
    "a complex number": 1j,
    "a signaling NaN": Decimal("sNaN"),
}


def misbehave(text: str, data: Any) -> Any:
    """Do what the text names."""
    return RETURNS[text] if text in RETURNS else MISBEHAVIORS[text]()


def prints() -> float:
    print("to standard output", flush=True)  # noqa: T201 - the point
    sys.stderr.write("to standard error")
    os.write(1, b"x" * 10**6)
    return 1.0


def imports() -> float:
    import fractions
    import sqlite3  # an extension module

    return float(fractions.Fraction(1) and bool(sqlite3.sqlite_version))


def starts_threads() -> float:
    threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1.0


def sets_an_alarm() -> float:
    """As math_verify does; it ends Python code, and nothing in C."""

    def stop(*_: object) -> NoReturn:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        loops()
    except TimeoutError:
        return 1.0


def collects_garbage() -> float:
    """Make cycles of 1 GB, were they kept."""
    for _ in range(4000):
        cycle: list[Any] = [bytearray(2**18), *([] for _ in range(1000))]
        cycle.append(cycle)
        del cycle
    return 1.0


BEHAVIORS: dict[str, Callable[[], float]] = {
    "prints": prints,
    "reads_a_file": lambda: float("reads_a_file" in Path(__file__).read_text()),
    "lists_a_folder": lambda: float(Path(__file__) in Path(__file__).parent.iterdir()),
    "imports": imports,
    "starts_threads": starts_threads,
    "runs_an_event_loop": lambda: asyncio.run(asyncio.sleep(0.01, 1.0)),
    "sets_an_alarm": sets_an_alarm,
    "asks_for_its_limits": lambda: float(resource.getrlimit(resource.RLIMIT_AS)[0] > 0),
    "collects_garbage": collects_garbage,
}
NUMBERS: dict[str, Any] = {
    "a bool": True,
    "an integer": 1,
    "a NumPy number": np.float32(1),
    "a decimal": Decimal(1),
}


def behave(text: str, data: Any) -> Any:
    """Do what the text names."""
    return NUMBERS[text] if text in NUMBERS else BEHAVIORS[text]()


def loosened(text: str, data: Any) -> float:
    """Do what an option of `allow` permits."""
    if text == "network":
        with urllib.request.urlopen(data, timeout=5) as reply:
            return float(reply.status == 200)
    if text == "processes":
        return float(
            subprocess.run(["echo", "x"], capture_output=True, text=True).stdout
            == "x\n"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_text("x")
        return float(shutil.copy(file, Path(folder) / "copy").read_text() == "x")


def variable(text: str, data: Any) -> float:
    """1 if the environment variable of that name has the data as its value."""
    return float(os.environ.get(text) == data)


def folder(text: str, data: Any) -> float:
    """1 if the working directory is that one."""
    return float(str(Path.cwd()) == data)
