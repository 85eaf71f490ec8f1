"""What `sync_dumps` costs: groups written per second, and how long one waits, with it and without.

python benchmarks/sync_dumps.py [--folder .] [--groups 300] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from reasoning_gym_environment.storage.dumps import SUCCESSFUL, DumpWriter

ROW = {"item_id": "gcd", "rollouts": [{"content": "x" * 8_000}] * 8}
"""Of eight completions of 2,000 tokens."""


class Round(NamedTuple):
    """Groups per second, and the seconds that each waited for the disk, in order."""

    rate: float
    waits: list[float]


async def write(folder: Path, *, groups: int, in_flight: int, synced: bool) -> Round:
    """Write groups, so many at a time."""
    waits: list[float] = []
    numbers = iter(range(groups))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        writer = DumpWriter(Path(place), "run", Counter(), synced=synced)

        async def worker() -> None:
            for number in numbers:
                begin = time.perf_counter()
                await writer.write(SUCCESSFUL, {**ROW, "number": number})
                waits.append(time.perf_counter() - begin)

        begin = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        rate = groups / (time.perf_counter() - begin)
        writer.close()
    return Round(rate, sorted(waits))


async def compare(folder: Path, groups: int, rounds: int) -> None:
    for in_flight in (1, 16):
        found: dict[bool, list[Round]] = {False: [], True: []}
        for _ in range(rounds):
            for synced, done in found.items():
                done.append(
                    await write(
                        folder, groups=groups, in_flight=in_flight, synced=synced
                    )
                )
        for synced, done in found.items():
            rates = [one.rate for one in done]
            waits = sorted(wait for one in done for wait in one.waits)
            print(
                f"{in_flight:3} at a time, {'synced' if synced else 'as ever':8} "
                f"{statistics.mean(rates):7.0f} groups/s ({min(rates):.0f} to {max(rates):.0f}), "
                f"median wait {1000 * statistics.median(waits):.2f} ms, "
                f"99th percentile {1000 * waits[int(0.99 * len(waits))]:.2f} ms"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(compare(options.folder, options.groups, options.rounds))


if __name__ == "__main__":
    main()
