"""Measure the page of running runs: reading files, memory, replies, and one more group.

Rollouts are invented as in `benchmarks/report.py`. Seconds are of the processor where they say so:
other programs that run meanwhile don't count.

    python benchmarks/watch.py
    python benchmarks/watch.py --rollouts 1000 --words 400
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from report import GROUP_SIZE, rows, write_rows

from reasoning_gym_environment.report.follow import LiveIndex

DUMP = "reasoning_gym_environment_rollouts_invented_0000.jsonl"


@contextmanager
def measured(what: str) -> Iterator[None]:
    begin, processor = time.perf_counter(), time.process_time()
    yield
    seconds, own = time.perf_counter() - begin, time.process_time() - processor
    print(f"{what:32} {own:8.3f} s of the processor, {seconds:8.3f} s")


def memory() -> float:
    """The largest memory of this process so far, in MB (on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def read_all(live: LiveIndex) -> None:
    while live.update():
        pass


def search_all(live: LiveIndex, text: str) -> int:
    found, searched = 0, 0
    while searched < len(live):
        reply = live.search(text, after=searched)
        found, searched = found + len(reply["found"]), reply["searched"]
    return found


def reply_of(batch: Callable[[], Any]) -> bytes:
    return gzip.compress(json.dumps(batch(), separators=(",", ":")).encode(), 4)


def measure(folder: Path) -> None:
    before = memory()
    live = LiveIndex([folder])
    with measured("read the files"):
        read_all(live)
    print(f"{'memory':32} {memory() - before:8.1f} MB more than {before:.0f} MB")
    with measured("the whole index"):
        reply = reply_of(live.batch)
    print(f"{'its size, compressed':32} {len(reply) / 1e6:8.2f} MB")
    cursor = live.batch()["cursor"]
    line = next(iter(rows(1, 100, evaluation=False)))
    with (folder / DUMP).open("a") as file:
        file.write(json.dumps(line | {"number": 0, "time": "2027-01-01T00:00:00+00:00"}) + "\n")
    time.sleep(1.0)  # the index looks at its files once a second
    with measured("one more group"):
        read_all(live)
        reply_of(lambda: live.batch(cursor))
    identifier = live.batch(cursor)["groups"]["id"][0]
    with measured("the texts of a group"):
        live.group(identifier)
    with measured("search in all texts"):
        search_all(live, "kakaka")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=100, help="of a thought, in the median")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_rows(folder / DUMP, rows(options.rollouts // GROUP_SIZE, options.words))
        print(f"{options.rollouts:,} rollouts, {(folder / DUMP).stat().st_size / 1e6:.0f} MB")
        measure(folder)


if __name__ == "__main__":
    main()
