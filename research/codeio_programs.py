"""Find the programs of codeio whose inputs or outputs differ between two runs.

    python -m research.codeio_programs

Runs every program on INPUTS generated inputs in two processes with different hash seeds, outside
the sandbox, and writes `tasks/item_checks/unpredictable_programs.json` in the package: the CRC-32
of each program that draws from chance, the clock, the order of a set, or an address.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
from reasoning_gym.data import get_data_file_path

INPUTS = 5
SECONDS = 10
TABLE = Path("reasoning_gym_environment/tasks/item_checks/unpredictable_programs.json")


Run = tuple[str, str]
"""What a program took and returned; empty texts if it failed or took too long before that."""


def runs() -> Iterator[tuple[str, list[Run]]]:
    """Yield the CRC-32 of each program, and its runs."""
    with gzip.open(
        get_data_file_path("codeio.jsonl.gz"), "rt", encoding="utf-8"
    ) as lines:
        programs = [json.loads(line) for line in lines]
    for number, program in enumerate(programs):
        code = program["code_sample"]
        yield (
            f"{crc32(code.strip().encode()):08x}",
            [
                run(code, program["input_generator"], 1000 * number + i)
                for i in range(INPUTS)
            ],
        )


def run(code: str, generator: str, seed: int) -> Run:
    """Run a program on an input, without what it prints, whatever programs before it seeded."""
    random.seed()
    np.random.seed()
    names: dict[str, Any] = {"Random": Random}
    took = returned = ""
    silence = io.StringIO()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    # A program may raise anything, also SystemExit.
    with contextlib.redirect_stdout(silence), contextlib.suppress(BaseException):
        exec(f"{code}\n\n{generator}", names, names)
        inputs = names["generate_inputs"](Random(seed))
        took = repr(inputs)
        returned = json.dumps(names["main_solution"](**inputs))
    signal.setitimer(signal.ITIMER_REAL, 0)
    return took, returned


def in_a_process(hash_seed: int) -> list[tuple[str, list[Run]]]:
    """Return the runs of a fresh process."""
    with tempfile.TemporaryDirectory() as folder:  # some programs write files
        path = Path(folder, "runs.json")
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        command = [sys.executable, __file__, str(path)]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        found: list[tuple[str, list[Run]]] = json.loads(
            path.read_text(encoding="utf-8")
        )
        return found


def main() -> None:
    if len(sys.argv) > 1:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        Path(sys.argv[1]).write_text(json.dumps([*runs()]), encoding="utf-8")
        return
    one, other = in_a_process(1), in_a_process(2)
    differ = {
        crc
        for (crc, runs_of_one), (_, runs_of_other) in zip(one, other, strict=True)
        for a, b in zip(runs_of_one, runs_of_other, strict=True)
        if a[0] != b[0] or (a[1] != b[1] and a[1] and b[1])  # else one took too long
    }
    TABLE.write_text(json.dumps(sorted(differ), indent=0) + "\n", encoding="utf-8")
    print(f"{len(differ)} of {len(one)} programs in {TABLE}")


if __name__ == "__main__":
    main()
