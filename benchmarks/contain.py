"""Cost of a call of a contained function, beside `multiprocessing` with a timeout and verifiers.

Calls go one after the other, in each way in turn, over several rounds. --verifiers names the Python
of an environment with verifiers and sympy, whose subprocess runtime then takes part:

    python benchmarks/contain.py --rounds 5 --verifiers .venv-integrations/verifiers/bin/python
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import measured_functions

TIMEOUT = 30.0
CASES = {
    "contains": ("The answer is 4.", "4"),
    "same_expression": ("(x + 1)**2 - sin(y)", "x**2 + 2*x + 1 - sin(y)"),
}
Call = Callable[[], float]


def send_result(connection: Connection, name: str) -> None:
    connection.send(getattr(measured_functions, name)(*CASES[name]))


def in_own_process(method: str, name: str) -> Call:
    """Return a call that has a process of `multiprocessing`, which is killed at the deadline."""
    context: Any = multiprocessing.get_context(method)

    def call() -> float:
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=send_result, args=(sending, name))
        process.start()
        sending.close()
        try:
            return float(receiving.recv()) if receiving.poll(TIMEOUT) else 0.0
        finally:
            process.kill()
            process.join()

    return call


def ways(name: str) -> dict[str, tuple[Call, int]]:
    """Return calls, with how many of them make a round. All that can be warm is."""
    from reasoning_gym_environment import contain

    function, case = getattr(measured_functions, name), CASES[name]
    function(*case)
    reward = contain(function, timeout=TIMEOUT, processes=1, warm_up=[case])
    return {
        "in process, no limit": (lambda: function(*case), 200),
        "contain": (lambda: reward(*case) or 0.0, 100),
        "multiprocessing, fork": (in_own_process("fork", name), 40),
        "multiprocessing, spawn": (in_own_process("spawn", name), 4),
    }


def milliseconds(call: Call, count: int) -> float:
    """Return the mean time of a call."""
    begin = time.perf_counter()
    for _ in range(count):
        assert call() == 1.0
    return 1000 * (time.perf_counter() - begin) / count


async def in_runtimes(name: str, count: int) -> float:
    """Return the mean time of a call that has a runtime of verifiers, as a task of its own has."""
    from verifiers.v1.runtimes.subprocess import SubprocessConfig, SubprocessRuntime

    program = (
        f"import sys; sys.path.append({str(Path(__file__).parent)!r}); "
        f"from measured_functions import {name}; print({name}(*sys.argv[1:]))"
    )
    begin = time.perf_counter()
    for number in range(count):
        runtime = SubprocessRuntime(
            SubprocessConfig(), name=f"{time.time_ns()}-{number}"
        )
        await runtime.start()
        try:
            command = [sys.executable, "-c", program, *CASES[name]]
            result = await asyncio.wait_for(runtime.run(command, {}), TIMEOUT)
        finally:
            await runtime.stop()
        assert result.stdout.strip() == "1.0", result
    return 1000 * (time.perf_counter() - begin) / count


def verifiers_milliseconds(python: str, name: str) -> float:
    command = [python, __file__, "--runtimes", name]
    return float(subprocess.check_output(command, text=True).splitlines()[-1])


def compare(rounds: int, verifiers: str | None) -> None:
    for name in CASES:
        calls = ways(name)
        found: dict[str, list[float]] = {way: [] for way in calls}
        for call, _ in calls.values():
            call()
        for _ in range(rounds):
            for way, (call, count) in calls.items():
                found[way].append(milliseconds(call, count))
            if verifiers:
                way = "verifiers, a subprocess runtime per task"
                found.setdefault(way, []).append(
                    verifiers_milliseconds(verifiers, name)
                )
        print(f"{name}, ms a call: mean of {rounds} rounds (range)")
        for way, values in found.items():
            print(f"  {way:42} {statistics.mean(values):9.3f} ", end="")
            print(f"({min(values):.3f} to {max(values):.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--verifiers", metavar="PYTHON", help="of an environment with verifiers"
    )
    parser.add_argument("--runtimes", metavar="FUNCTION", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.runtimes:
        print(asyncio.run(in_runtimes(options.runtimes, 4)))
    else:
        compare(options.rounds, options.verifiers)


if __name__ == "__main__":
    main()
