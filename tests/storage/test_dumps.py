"""A group that counts as done is on disk, whatever happens to the process or the disk."""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reasoning_gym_environment.storage.dumps import (
    FAILED,
    PARTIAL,
    SUCCESSFUL,
    DumpKind,
    DumpWriter,
    dump_kind,
    read_dump,
)
from reasoning_gym_environment.util.files import append_whole

SCRIPT = Path(__file__).with_name("dump_writer.py")


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


async def write_all(
    folder: Path, kind: DumpKind, rows: list[dict[str, Any]]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    writer = DumpWriter(folder, "run", counts)
    for row in rows:
        await writer.write(kind, row)
    writer.close()
    return counts


async def test_files_of_each_kind_are_numbered_and_have_their_size(
    tmp_path: Path,
) -> None:
    counts: Counter[str] = Counter()
    writer = DumpWriter(tmp_path, "run", counts)
    for number in range(203):
        await writer.write(SUCCESSFUL, {"good": number})
        await writer.write(FAILED, {"bad": number})
    writer.close()
    for kind, key, sizes in (
        (SUCCESSFUL, "good", [100, 100, 3]),
        (FAILED, "bad", [50] * 4 + [3]),
    ):
        name = f"reasoning_gym_environment_{kind.name}_run_{{:04d}}.jsonl"
        contents = [
            read_dump(tmp_path / name.format(i)).rows for i in range(len(sizes))
        ]
        assert [len(content) for content in contents] == sizes
        rows = [row for content in contents for row in content]
        assert rows == [{key: number} for number in range(203)]
    assert len(files(tmp_path)) == 8
    assert counts == {"dumps/rollouts": 203, "dumps/FAILED_rollouts": 203}


async def test_groups_written_at_once_are_all_there_each_on_its_line(
    tmp_path: Path,
) -> None:
    writer = DumpWriter(tmp_path, "run", Counter())
    rows = [{"number": number, "filler": "x" * 10_000} for number in range(250)]
    await asyncio.gather(*(writer.write(SUCCESSFUL, row) for row in rows))
    writer.close()
    found = [row for path in files(tmp_path) for row in read_dump(path).rows]
    assert sorted(found, key=lambda row: row["number"]) == rows


async def test_a_group_is_on_disk_when_its_write_returns(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "made" / "for_it", "run", Counter())
    assert not (tmp_path / "made").exists()
    for number in range(3):
        await writer.write(SUCCESSFUL, {"number": number})
        [path] = files(tmp_path / "made" / "for_it")
        assert read_dump(path).rows[-1] == {"number": number}
    writer.close()


async def test_a_write_finishes_though_its_caller_is_cancelled(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, "run", Counter())
    row = {"filler": "x" * 5_000_000}
    writing = asyncio.create_task(writer.write(SUCCESSFUL, row))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    writer.close()
    assert read_dump(writer.path(SUCCESSFUL, 0)).rows == [row]


async def test_progress_is_logged_every_ten_groups_and_at_the_end_of_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await write_all(tmp_path, FAILED, [{}] * 52)
    *progress, end = caplog.messages
    assert [text.split(" in ")[0] for text in progress] == [
        f"FAILED_rollouts: {done} of 50 groups" for done in (10, 20, 30, 40)
    ]
    assert end.startswith("Dump file complete: ")


@pytest.mark.parametrize(
    ("rewards", "kind"),
    [
        ([0.0, 0.8], SUCCESSFUL),
        ([0.0, 0.7], PARTIAL),
        ([0.0, 0.01], PARTIAL),
        ([0.0], FAILED),
    ],
)
def test_a_group_is_successful_above_the_threshold_and_failed_without_any_reward(
    rewards: list[float], kind: DumpKind
) -> None:
    assert dump_kind(rewards, threshold=0.7) == kind


async def test_beyond_the_limit_the_oldest_files_are_deleted_which_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts: Counter[str] = Counter()
    other = DumpWriter(tmp_path, "other", Counter())
    await other.write(FAILED, {})
    writer = DumpWriter(tmp_path, "run", counts, max_bytes=120_000)
    await writer.write(FAILED, {"number": -1})
    for number in range(450):
        await writer.write(SUCCESSFUL, {"number": number, "filler": "x" * 500})
    for each in (other, writer):
        each.close()
    assert [path.name for path in files(tmp_path)] == [
        "reasoning_gym_environment_FAILED_rollouts_other_0000.jsonl",  # another run's
        "reasoning_gym_environment_rollouts_run_0003.jsonl",
        "reasoning_gym_environment_rollouts_run_0004.jsonl",
    ]
    assert sum(path.stat().st_size for path in files(tmp_path)[1:]) <= 120_000
    assert counts["dumps/deleted_files"] == 4
    [said] = [message for message in caplog.messages if "deleted" in message]
    oldest = tmp_path / "reasoning_gym_environment_FAILED_rollouts_run_0000.jsonl"
    assert said == (
        "The dumps of this run reach 0.00012 GB: from now on its oldest files are deleted, "
        f"{oldest} first; --env.max_dump_gb sets the limit"
    )


@example("\ud800")
@example("a\u2028b\u2029c")
@example("\x00\x85\x0b\x0c\x1c\r\n")
@example('"}\n{"')
@given(st.text(st.characters(codec=None), max_size=50))
def test_any_text_of_a_model_survives_the_round_trip_on_one_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        counts = asyncio.run(write_all(Path(folder), SUCCESSFUL, [{"said": text}, {}]))
        [path] = files(Path(folder))
        assert read_dump(path) == ([{"said": text}, {}], 0)
        assert path.read_bytes().count(b"\n") == 2
        assert counts["dumps/lost"] == 0


@pytest.mark.parametrize(
    "torn",
    ['{"item_id": "gc', "[1, 2]", "null", "{'a': 1}", "\udce9\udcff", "[" * 100_000],
)
def test_a_torn_line_is_skipped_and_counted(
    tmp_path: Path, torn: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "dump.jsonl"
    path.write_bytes(
        b'{"a": 1}\n' + torn.encode(errors="surrogateescape") + b'\n{"b": 2}\n'
    )
    assert read_dump(path) == ([{"a": 1}, {"b": 2}], 1)
    assert "skipped 1 torn lines" in caplog.text


def test_a_whole_file_is_read_without_a_log_line_and_a_missing_one_raises_an_os_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "dump.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    assert read_dump(path) == ([{"a": 1}], 0)
    assert caplog.text == ""
    with pytest.raises(FileNotFoundError):
        read_dump(tmp_path / "none.jsonl")


def killed_after(seconds: float, folder: Path) -> list[int]:
    """Kill an endless writer some time after its first group; the groups it said were done."""
    command = [sys.executable, str(SCRIPT), "endless", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(seconds)
        writer.kill()
        return [int(line) for line in (first + writer.stdout.read()).splitlines()]


@pytest.mark.processes
@pytest.mark.parametrize("attempt", range(6))
def test_every_group_that_was_done_survives_a_killed_writer(
    tmp_path: Path, attempt: int
) -> None:
    done = killed_after(random.Random(attempt).uniform(0.0, 0.25), tmp_path)
    contents = [read_dump(path) for path in files(tmp_path)]
    numbers = [row["number"] for content in contents for row in content.rows]
    assert done
    assert numbers[: len(done)] == done
    assert len(numbers) <= len(done) + 1
    assert sum(content.torn for content in contents) <= 1
    assert all(
        len(row["filler"]) == 3_000_000 for content in contents for row in content.rows
    )


@pytest.mark.processes
def test_a_full_disk_is_reported_once_and_counted_and_the_file_stays_whole(
    tmp_path: Path,
) -> None:
    pytest.importorskip("resource")
    command = [sys.executable, str(SCRIPT), "limited", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["3 6", "4 6"]
    assert ended.stderr.count("ERROR Dumps can't be written to") == 1
    assert str(tmp_path) in ended.stderr
    [path] = files(tmp_path)
    content = read_dump(path)
    assert [row["number"] for row in content.rows] == [0, 1, 2, 9]
    assert content.torn == 0


async def test_a_folder_that_cannot_be_made_is_reported_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    counts = await write_all(tmp_path / "file" / "dumps", FAILED, [{}, {}, {}])
    assert counts == {"dumps/lost": 3}
    assert caplog.text.count("Dumps can't be written") == 1


async def test_a_disk_that_fails_again_is_reported_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, aside = tmp_path / "dumps", tmp_path / "aside"
    writer = DumpWriter(folder, "run", Counter())
    for _ in range(2):
        folder.write_text("in the way")
        await writer.write(FAILED, {})
        folder.unlink()
        await writer.write(FAILED, {})
        folder.rename(aside)
        aside = aside.with_name(aside.name + "_again")
    writer.close()
    assert caplog.text.count("Dumps can't be written") == 2


def test_appending_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    append_whole(path, b"one\n")
    append_whole(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
