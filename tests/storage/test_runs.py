"""A run's record: who it is and how it goes, beside its dumps."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from reasoning_gym_environment.storage.run_record import (
    RunRecord,
    RunRecorder,
    is_record,
    read_record,
    read_run,
    record_path,
)
from reasoning_gym_environment.util.concurrency import DaemonWriter
from reasoning_gym_environment.util.logs import SecretRedactor

LOG = logging.getLogger("reasoning_gym_environment.some.part")


def recorder(folder: Path) -> RunRecorder:
    redactor = SecretRedactor(["sk-secret"])
    return RunRecorder(folder, "a-run", disk=DaemonWriter(folder), redactor=redactor)


async def end(own: RunRecorder) -> None:
    own.close()
    await asyncio.to_thread(own._disk.close)


async def written(folder: Path) -> RunRecord:
    path = record_path(folder, "a-run")
    while not path.exists():
        await asyncio.sleep(0.01)
    record = read_record(path)
    assert record is not None
    return record


async def test_a_record_says_who_the_run_is_and_when_it_ended(tmp_path: Path) -> None:
    own = recorder(tmp_path / "dumps")
    state = {"failures": 3, "waiting": "pauses for 2 s"}
    own.start({"seed": 42, "tasks": ["gcd"]}, lambda: state)
    record = await written(tmp_path / "dumps")
    assert (record.run, record.settings) == ("a-run", {"seed": 42, "tasks": ["gcd"]})
    assert (record.failures, record.waiting, record.ended) == (3, "pauses for 2 s", "")
    await end(own)
    own.close()
    record = await written(tmp_path / "dumps")
    assert record.started < record.ended
    assert [*(tmp_path / "dumps").iterdir()] == [
        record_path(tmp_path / "dumps", "a-run")
    ]


async def test_a_record_has_the_warnings_of_the_log_without_keys(
    tmp_path: Path,
) -> None:
    own = recorder(tmp_path)
    own.start({}, dict)
    LOG.warning("refused sk-secret\x1b[31m\nand a second line")
    LOG.info("not a warning")
    await end(own)
    LOG.error("after the end")
    [warning] = (await written(tmp_path)).warnings
    assert (warning.level, warning.text) == ("WARNING", "refused withheld\\x1b[31m")


async def test_a_record_has_what_its_run_waited_for_and_when(tmp_path: Path) -> None:
    own = recorder(tmp_path)
    own.record_seconds = 0.01
    own.least_wait_seconds = 0.005
    reasons = iter(["", "inference", "inference", "", "a trainer"])
    last = ""

    def reason() -> str:
        nonlocal last
        last = next(reasons, last)
        return last

    own.start({}, dict, reason)
    own.note_event("registered")
    with own.note_while("evaluation"):
        while (record := await written(tmp_path)).wait is None or len(record.waits) < 2:
            await asyncio.sleep(0.01)
    inference, trainer = record.waits
    assert (inference.reason, trainer.reason) == ("inference", "a trainer")
    assert record.started <= inference.since < inference.until <= trainer.since
    assert (trainer.until, record.wait) == ("", trainer)
    registered, evaluation = record.events
    assert (registered.text, evaluation.text) == ("registered", "evaluation")
    assert registered.until == registered.time <= evaluation.time
    assert evaluation.until == ""
    own.close("at step 3 of 8")
    await asyncio.to_thread(own._disk.close)
    record = await written(tmp_path)
    assert (record.wait, record.ending) == (None, "at step 3 of 8")
    assert record.waits[-1].until >= trainer.since
    assert record.events[-1].until >= evaluation.time


async def test_a_wait_of_seconds_is_not_recorded(tmp_path: Path) -> None:
    own = recorder(tmp_path)
    own.record_seconds = 0.01
    looks = 0

    def reason() -> str:
        nonlocal looks
        looks += 1
        return "a batch" if looks % 2 else ""

    own.start({}, dict, reason)
    while looks < 10:
        await asyncio.sleep(0.01)
    await end(own)
    assert (await written(tmp_path)).waits == []


async def test_a_record_that_is_not_started_writes_nothing(tmp_path: Path) -> None:
    recorder(tmp_path).close()
    assert not [*tmp_path.iterdir()]


async def test_a_record_that_cannot_be_written_is_logged_and_disturbs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dumps").write_text("a file")
    own = recorder(tmp_path / "dumps")
    own.start({}, dict)
    await end(own)
    assert caplog.text.count("The run's record can't be written") == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"run": 1}',
        b'{"run":"r","started":2}',
    ],
)
def test_what_is_no_record_is_left_out(tmp_path: Path, content: bytes) -> None:
    path = record_path(tmp_path, "r")
    path.write_bytes(content)
    assert read_record(path) is None


def test_a_record_of_a_later_version_is_read(tmp_path: Path) -> None:
    path = record_path(tmp_path, "r")
    later = {"run": "r", "started": "s", "updated": "u", "new": [1]}
    path.write_text(json.dumps(later))
    assert read_record(path) == RunRecord(run="r", started="s", updated="u")


def test_other_files_are_no_records(tmp_path: Path) -> None:
    assert is_record(record_path(tmp_path, "a-run").name)
    assert not is_record("reasoning_gym_environment_run_a b.json")
    assert not is_record("run.json")
    record_path(tmp_path, "folder").mkdir()
    assert read_run(tmp_path, "folder") is None
    assert read_run(tmp_path, "../folder") is None
