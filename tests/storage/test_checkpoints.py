"""Checkpoints are written whole or not at all, replace nothing later, and are read with care."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.storage.checkpoints import STREAM, Checkpoints

HOLDER = """
import asyncio, sys
from collections import Counter
from pathlib import Path
from reasoning_gym_environment.storage.checkpoints import Checkpoints
asyncio.run(Checkpoints(Path(sys.argv[1]), Counter()).claim(patience=0))
print("claimed", flush=True)
sys.stdin.read()
"""


def read(path: Path) -> dict[str, Any]:
    return Checkpoints(path.parent, Counter()).read(path, accept_changed=False)


def saved(folder: Path, *steps: int) -> Checkpoints:
    checkpoints = Checkpoints(folder, Counter())
    for step in steps:
        checkpoints.save(step, {"stream_state": {"step": step}})
    return checkpoints


def test_the_newest_that_is_not_after_the_trainers_step_is_found(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "env_0"
    checkpoints = saved(folder, 3, 6, 12)
    (folder / "step-9.partial.json").write_text("{}")
    (folder / ".step-9.json.1.partial").write_text("{")
    (folder / "step-x.json").write_text("{}")
    names = {step: checkpoints.newest(step) for step in (2, 3, 5, 11, 12, 99)}
    found = {step: path.name if path else None for step, path in names.items()}
    assert found == {
        2: None,
        3: "step-3.json",
        5: "step-3.json",
        11: "step-6.json",
        12: "step-12.json",
        99: "step-12.json",
    }
    assert read(folder / "step-6.json") == {STREAM: {"step": 6}}


def test_what_an_earlier_run_left_is_not_continued_by_accident(tmp_path: Path) -> None:
    folder = tmp_path / "env_0"
    saved(folder, 3, 6)
    checkpoints = saved(folder, 0)
    assert checkpoints.newest(5) == folder / "step-0.json"
    # Step 6 is the earlier run's.
    assert checkpoints.newest(6) == folder / "step-0.json"
    checkpoints.save(3, {"stream_state": "this run's"})
    assert checkpoints.newest(5) == folder / "step-3.json"


def test_a_clock_that_is_set_back_hides_no_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "env_0"
    saved(folder, 3, 6)
    hour = time.time() + 3600  # which it was at the start of each run
    os.utime(folder / "step-6.json", (hour, hour))
    checkpoints = saved(folder, 0)
    assert checkpoints.newest(9) == folder / "step-0.json"
    checkpoints.save(5, {"stream_state": 1})
    assert checkpoints.newest(9) == folder / "step-5.json"
    resumed = saved(folder, 8)
    assert resumed.newest(9) == folder / "step-8.json"


def test_a_folder_copied_without_its_times_continues_at_the_newest(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "env_0"
    saved(folder, 0, 10)
    saved(folder, 30)  # by a restart
    for path in folder.iterdir():  # as if step 0 had been copied last
        os.utime(path, (10**9, 10**9 - int(path.stem.removeprefix("step-"))))
    assert Checkpoints(folder, Counter()).newest(35) == folder / "step-30.json"


def test_a_damaged_checkpoint_is_found_so_that_it_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "env_0"
    checkpoints = saved(folder, 0, 3, 6)
    (folder / "step-6.json").write_text("{")
    assert checkpoints.newest(7) == folder / "step-6.json"
    (folder / "step-6.json").unlink()
    (folder / "step-0.json").write_text("{")
    assert checkpoints.newest(7) == folder / "step-3.json"


def test_a_later_state_is_never_saved_under_an_earlier_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts: Counter[str] = Counter()
    checkpoints = Checkpoints(tmp_path / "env_0", counts)
    for step, state in (
        (10, "early"),
        (26, "late"),
        (10, "later still"),
        (26, "again"),
    ):
        checkpoints.save(step, {"stream_state": state})
    kept = {path.name: read(path)[STREAM] for path in (tmp_path / "env_0").iterdir()}
    assert kept == {"step-10.json": "early", "step-26.json": "again"}
    assert counts == {"checkpoints/saved": 3, "checkpoints/failed": 1}
    assert (
        "The checkpoint of step 10 was not saved: this run has saved step 26"
        in caplog.text
    )


def test_a_failed_save_is_logged_counted_and_leaves_the_old_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts: Counter[str] = Counter()
    folder = tmp_path / "env_0"
    checkpoints = Checkpoints(folder, counts)
    checkpoints.save(3, {"stream_state": 1})
    folder.rename(tmp_path / "aside")
    folder.write_text("in the way")
    checkpoints.save(6, {"stream_state": 2})
    folder.unlink()
    (tmp_path / "aside").rename(folder)
    checkpoints.save(9, {"stream_state": 3})
    assert sorted(path.name for path in folder.iterdir()) == [
        "step-3.json",
        "step-9.json",
    ]
    assert counts == {"checkpoints/saved": 2, "checkpoints/failed": 1}
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert "The checkpoint of step 6 was not saved: " in record.getMessage()
    assert "training continues" in record.getMessage()


def test_a_folder_that_cannot_be_written_to_is_refused_with_the_way_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "env_0"
    with pytest.raises(FixableError) as raised:
        Checkpoints(folder, Counter()).require_writable()
    assert str(raised.value) == (
        f"checkpoints can't be written to {folder} (Not a directory): make it writable, or give "
        "the trainer another checkpoint folder"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "it is not valid JSON: "),
        (b'{"stream_state": {"sampler"', "it is not valid JSON: "),
        (b"\xff\xfe\x00", "it is not valid JSON: "),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"[]", "the value must be object, got []"),
        (b"{}", "schema_version is None, this program reads 1"),
        (b'{"schema_version": 1}', "stream_state is missing: it is not a checkpoint"),
        (b'{"schema_version": 2}', "schema_version is 2, this program reads 1"),
        (b'{"schema_version": "x"}', "schema_version is 'x', this program reads 1"),
        (None, "not a regular file"),
    ],
)
def test_what_is_no_checkpoint_is_a_reason(
    tmp_path: Path, text: bytes | None, reason: str
) -> None:
    path = tmp_path / "step-3.json"
    if text is None:
        path.mkdir()
    else:
        path.write_bytes(text)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the sentence is below
        read(path)
    assert str(raised.value).startswith(reason)
    assert "\n" not in str(raised.value)


async def test_two_replicas_of_one_name_are_refused_until_the_first_ends(
    tmp_path: Path,
) -> None:
    first, second = (Checkpoints(tmp_path / "env_0", Counter()) for _ in range(2))
    other = Checkpoints(tmp_path / "env_1", Counter())
    await first.claim(patience=0)
    await other.claim(patience=0)
    with pytest.raises(
        FixableError, match=r"another process is replica 'env_0'; stop it, or name"
    ):
        await second.claim(patience=0)
    waiting = asyncio.create_task(second.claim(patience=20))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    first.close()
    await waiting


async def test_a_note_reaches_the_next_process_of_a_name_and_no_other(
    tmp_path: Path,
) -> None:
    for told, note in (("", "a"), ("a", ""), ("", "b"), ("b", "c")):
        checkpoints = Checkpoints(tmp_path / "env_0", Counter())
        assert not checkpoints.leave_note("not mine yet")
        assert await checkpoints.claim(patience=0) == told
        with pytest.raises(
            FixableError, match=f"is held by process {os.getpid()} on [^ ]+: "
        ):
            await Checkpoints(tmp_path / "env_0", Counter()).claim(patience=0)
        if note:
            assert checkpoints.leave_note(note)
        checkpoints.close()


@pytest.mark.processes
async def test_a_killed_replica_leaves_its_name_to_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "env_0"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"claimed\n"
        with pytest.raises(FixableError, match=f"is held by process {holder.pid} on "):
            await Checkpoints(folder, Counter()).claim(patience=0)
        holder.kill()
        holder.wait()
    await Checkpoints(folder, Counter()).claim(patience=0)


async def test_a_save_in_the_background_is_on_disk_after_the_close(
    tmp_path: Path,
) -> None:
    checkpoints = Checkpoints(tmp_path / "env_0", Counter())
    state = [1]
    checkpoints.submit(3, {"stream_state": state})
    state.append(2)
    await asyncio.to_thread(checkpoints.close)
    content = json.loads((tmp_path / "env_0" / "step-3.json").read_text())
    assert content.keys() == {"schema_version", "lineage", "stream_state"}
    assert content["stream_state"] == [1]


@pytest.mark.nightly
async def test_a_disk_that_hangs_blocks_neither_training_nor_closing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts: Counter[str] = Counter()
    checkpoints = Checkpoints(tmp_path / "env_0", counts)
    checkpoints.require_writable()
    checkpoints._disk.submit(threading.Event().wait)  # as a write that never ends
    checkpoints.submit(3, {"stream_state": 1})
    checkpoints.submit(6, {"stream_state": 2})
    begin = time.monotonic()
    while not caplog.messages:
        assert time.monotonic() - begin < 60
        await asyncio.sleep(0.1)
    assert not counts
    await asyncio.to_thread(checkpoints.close)
    await asyncio.to_thread(checkpoints.close)
    assert counts == {"checkpoints/failed": 3}
    warning, error = caplog.messages
    assert re.sub(r"for \d+ s", "for 5 s", warning) == (  # a busy machine takes longer
        f"The disk of {tmp_path}/env_0 has written nothing for 5 s: 3 waiting in memory, "
        "the run continues until 256 wait"
    )
    assert error == f"The disk of {tmp_path}/env_0 does not respond: 3 checkpoints lost"
