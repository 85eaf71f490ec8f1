"""Writes dumps for the tests that break the writer; says each thing after it is done.

Usage: python dump_writer.py endless|limited|small|synced|ending FOLDER
"""

import asyncio
import logging
import resource
import sys
from collections import Counter
from pathlib import Path

from reasoning_gym_environment.storage.dumps import SUCCESSFUL, DumpWriter

LIMIT = 50_000


def row(number: int, size: int) -> dict[str, object]:
    return {"item_id": "gcd", "number": number, "filler": "x" * size}


async def endless(writer: DumpWriter) -> None:
    for number in range(1_000_000):
        await writer.write(SUCCESSFUL, row(number, 3_000_000))
        print(number, flush=True)  # noqa: T201 - read by the test


async def limited(writer: DumpWriter, counts: Counter[str]) -> None:
    """Fill what may be written, go on, then find space again."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    for number in range(9):
        await writer.write(SUCCESSFUL, row(number, 15_000))
    print(counts["dumps/rollouts"], counts["dumps/lost"], flush=True)  # noqa: T201 - read by the test
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await writer.write(SUCCESSFUL, row(9, 15_000))
    print(counts["dumps/rollouts"], counts["dumps/lost"], flush=True)  # noqa: T201 - read by the test


async def small(writer: DumpWriter) -> None:
    """Small groups, as fast as they are taken."""
    for number in range(1_000_000):
        await writer.write(SUCCESSFUL, row(number, 10))
        print(number, flush=True)  # noqa: T201 - read by the test
        await asyncio.sleep(0.002)


async def ending(writer: DumpWriter, counts: Counter[str]) -> None:
    """Three groups that are under way when the end comes."""
    writes = [
        asyncio.create_task(writer.write(SUCCESSFUL, row(n, 10))) for n in range(3)
    ]
    await asyncio.wait(writes, timeout=0.1)
    await asyncio.to_thread(writer.close)
    print(counts["dumps/lost"], flush=True)  # noqa: T201 - read by the test


async def main(what: str, folder: Path) -> None:
    logging.basicConfig(format="%(levelname)s %(message)s")
    counts: Counter[str] = Counter()
    writer = DumpWriter(folder, "run", counts, synced=what == "synced")
    match what:
        case "endless":
            await endless(writer)
        case "limited":
            await limited(writer, counts)
        case "ending":
            await ending(writer, counts)
        case _:
            await small(writer)
    if what != "ending":
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
