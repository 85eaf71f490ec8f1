"""Dumps on disks that are full, that stall, or that lose unsynced data.

A FIFO that nobody reads stands for a disk that stalls: opening it for writing blocks.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_disks import memory_disk, mounted

from reasoning_gym_environment.storage.dumps import SUCCESSFUL, DumpWriter, read_dump
from reasoning_gym_environment.util.concurrency import QUEUE_SIZE

SCRIPT = Path(__file__).with_name("dump_writer.py")
FILE = "reasoning_gym_environment_rollouts_run_0000.jsonl"

pytestmark = pytest.mark.processes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with memory_disk(tmp_path / "small", "64k") as folder:
        yield folder


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The image of an empty ext4 disk."""
    if not shutil.which("mkfs.ext4"):
        pytest.skip("there is no mkfs.ext4")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    return image


class Program:
    """The writer in a process of its own, and how many groups it has said to be done."""

    def __init__(self, what: str, folder: Path, aside: Path) -> None:
        self._said = aside / "said"
        self._log = aside / "log"
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), what, str(folder)],
                stdout=said,
                stderr=log,
            )

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> list[int]:
        whole = self._said.read_text().rpartition("\n")[0]
        return [int(line) for line in whole.splitlines()]

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, (self.log, self.said[-1:])
            time.sleep(0.05)


def numbers(folder: Path) -> list[int]:
    rows = [
        row for path in sorted(folder.glob("*.jsonl")) for row in read_dump(path).rows
    ]
    return [row["number"] for row in rows]


async def test_a_full_disk_is_logged_with_its_losses_and_its_recovery(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts: Counter[str] = Counter()
    writer = DumpWriter(small_disk / "dumps", "run", counts)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 32_768)
    for number in range(5):
        await writer.write(SUCCESSFUL, {"number": number, "filler": "x" * 9_000})
    ballast.unlink()
    for number in range(5, 7):
        await writer.write(SUCCESSFUL, {"number": number, "filler": "x" * 9_000})
    writer.close()
    kept = numbers(small_disk / "dumps")
    lost = 7 - len(kept)
    assert kept[-2:] == [5, 6]
    assert lost > 1
    assert counts == {"dumps/rollouts": len(kept), "dumps/lost": lost}
    error, again = (record.getMessage() for record in caplog.records)
    assert error == (
        f"Dumps can't be written to {small_disk}/dumps ([Errno 28] No space left on device): "
        "1 group lost to disk so far, training continues; free space or change data_dumps_dir"
    )
    assert again == (
        f"Dumps are written to {small_disk}/dumps again after 0 s, with {lost} groups lost to disk"
    )


def test_while_a_disk_stalls_groups_wait_in_memory_until_that_is_full(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    os.mkfifo(folder / FILE)
    with Program("small", folder, tmp_path) as program:
        program.until(lambda: "the run waits" in program.log)
        assert len(program.said) == QUEUE_SIZE
        # A busy machine takes longer.
        log = re.sub(r"for \d+ s", "for 5 s", program.log)
        assert log.splitlines() == [
            f"WARNING The disk of {folder} has written nothing for 5 s: 1 waiting in memory, "
            f"the run continues until {QUEUE_SIZE} wait",
            f"WARNING The disk of {folder} has written nothing for 5 s: {QUEUE_SIZE + 1} "
            "waiting in memory, the run waits",
        ]
        # Which sees no end.
        with os.fdopen(os.open(folder / FILE, os.O_RDWR), "rb") as read:
            rows = [json.loads(read.readline())["number"] for _ in range(100)]
            program.until(lambda: len(program.said) > QUEUE_SIZE + 50)
    assert rows == list(range(100))
    assert program.log.splitlines()[2].startswith(
        f"WARNING The disk of {folder} is back after "
    )
    assert len(program.log.splitlines()) == 3
    later = read_dump(folder / FILE.replace("0000", "0001")).rows
    assert [row["number"] for row in later] == list(range(100, 200))


@pytest.mark.nightly
def test_a_disk_that_never_responds_does_not_block_closing(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    os.mkfifo(folder / FILE)
    command = [sys.executable, str(SCRIPT), "ending", str(folder)]
    begin = time.monotonic()
    ended = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    assert time.monotonic() - begin < 30
    assert ended.stdout == "3\n"
    assert ended.stderr.splitlines()[-1] == (
        f"ERROR The disk of {folder} does not respond: 3 groups lost to disk"
    )


def test_a_frozen_file_system_costs_no_group_and_no_order(
    tmp_path: Path, image: Path
) -> None:
    if not shutil.which("fsfreeze"):
        pytest.skip("there is no fsfreeze")
    with mounted(tmp_path / "disk", "-o", "loop", str(image)) as disk:
        folder = disk / "dumps"
        with Program("small", folder, tmp_path) as program:
            program.until(lambda: len(program.said) > 20)
            subprocess.run(["fsfreeze", "--freeze", str(disk)], check=True)
            try:
                before = len(program.said)
                program.until(lambda: len(program.said) > before + 100)
            finally:
                subprocess.run(["fsfreeze", "--unfreeze", str(disk)], check=True)
            program.until(lambda: "is back after" in program.log)
            said = program.said
        kept = numbers(folder)
    assert kept[: len(said)] == said
    assert kept == sorted(set(kept))


def test_a_synced_group_survives_a_power_cut(tmp_path: Path, image: Path) -> None:
    with mounted(tmp_path / "disk", "-o", "loop", str(image)) as disk:
        with Program("synced", disk / "dumps", tmp_path) as program:
            program.until(lambda: len(program.said) > 5)
            said = program.said
            # All that the platter holds at this moment.
            shutil.copy(image, tmp_path / "after")
        with mounted(
            tmp_path / "again", "-o", "loop", str(tmp_path / "after")
        ) as again:
            assert numbers(again / "dumps")[: len(said)] == said
