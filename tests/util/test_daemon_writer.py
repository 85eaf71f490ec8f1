"""Jobs of a disk run in order; while it hangs, callers go on until the queue is full."""

import asyncio
import gc
import threading
from functools import partial
from pathlib import Path

import pytest

from reasoning_gym_environment.util import concurrency
from reasoning_gym_environment.util.concurrency import DaemonWriter

FOLDER = Path("/some/disk")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk hangs when it has written nothing for a moment, and two writes fill its queue."""
    monkeypatch.setattr(concurrency, "HANG_SECONDS", 0.02)
    monkeypatch.setattr(concurrency, "QUEUE_SIZE", 2)


async def test_jobs_run_in_order_and_their_errors_are_the_callers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, ran = DaemonWriter(FOLDER), list[int]()

    def fail() -> None:
        raise OSError("no space")

    await asyncio.gather(
        *(disk.write(partial(ran.append, number)) for number in range(50))
    )
    assert ran == [*range(50)]
    with pytest.raises(OSError, match="no space"):
        await disk.write(fail)
    released = threading.Event()
    disk.submit(partial(released.wait, 60))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(disk.write(fail), 0.01)
    released.set()
    await disk.write(lambda: None)
    gc.collect()
    # Another test's garbage may be collected here, too.
    assert not [text for text in caplog.messages if "never retrieved" in text]
    assert (disk.pending, disk.close(), disk.close()) == (0, 0, 0)
    with pytest.raises(RuntimeError, match="the writer of /some/disk is closed"):
        disk.submit(fail)


@pytest.mark.usefixtures("impatient")
async def test_a_full_queue_and_a_job_that_must_end_make_the_caller_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, released, ran = DaemonWriter(FOLDER), threading.Event(), list[str]()
    disk.submit(lambda: released.wait() and None)
    await disk.write(lambda: ran.append("queued"))
    must_end = asyncio.create_task(
        disk.write(lambda: ran.append("synced"), must_end=True)
    )
    full = asyncio.create_task(disk.write(lambda: ran.append("full")))
    await asyncio.wait([must_end, full], timeout=0.1)
    assert not must_end.done()
    assert not full.done()
    assert (ran, disk.pending) == ([], 4)
    released.set()
    await asyncio.gather(must_end, full)
    assert ran == ["queued", "synced", "full"]
    continues, waits, back = caplog.messages
    assert "2 waiting in memory, the run continues until 2 wait" in continues
    assert waits.endswith("waiting in memory, the run waits")
    assert back.startswith("The disk of /some/disk is back after ")
    assert disk.close() == 0


@pytest.mark.usefixtures("impatient")
async def test_what_a_disk_has_not_written_is_counted_at_the_end() -> None:
    disk, released = DaemonWriter(FOLDER), threading.Event()
    for _ in range(3):
        disk.submit(lambda: released.wait() and None)
    assert disk.close(patience=0.01) == 3
    released.set()
