"""The limit of a proof is processor time, shared by the tasks at work; what sleeps counts less."""

import subprocess
import sys

import pytest
from clock import Clock

from reasoning_gym_environment.proof.clock import ProcessorClock, processor_seconds

BUSY = "import time\nwhile time.process_time() < 0.3: pass"


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_time_of_processes_below_this_one_counts() -> None:
    before = processor_seconds()
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    subprocess.run([sys.executable, "-c", below], check=True)
    after = processor_seconds()
    assert before is not None
    assert after is not None
    assert after - before >= 0.3


@pytest.mark.parametrize(
    ("used", "at_work", "seconds"),
    [(6.0, 1, 6.0), (6.0, 2, 3.0), (0.0, 2, 0.8), (None, 2, 8.0)],
)
def test_tasks_share_the_time_and_what_sleeps_counts_a_tenth(
    used: float | None, at_work: int, seconds: float
) -> None:
    wall = Clock()
    readings = [None if used is None else 100.0, None if used is None else 100.0 + used]
    clock = ProcessorClock(used=iter(readings).__next__, wall=wall)
    clock.at_work = at_work
    wall.now += 8.0
    assert clock.now() == seconds
    assert clock.now() == seconds  # read a moment ago
