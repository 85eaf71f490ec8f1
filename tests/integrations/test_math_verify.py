"""Math-Verify hangs on some answers; contained, each is a status in time."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from integration_programs import run_python
from page_blocks import ROOT, blocks

from reasoning_gym_environment import Status, contain
from reasoning_gym_environment.gym.containment import ContainedFunction

pytestmark = [pytest.mark.integration, pytest.mark.processes]

HANGS = r"\boxed{\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}}"
"""Of Math-Verify's issue 65."""

RIGHT = (r"\boxed{\frac{2}{4}}", "so it is $1/2$", "$0.5$", r"\boxed{\sin(\pi/6)}")
WRONG = (r"\boxed{3}", "no idea", "", r"\boxed{", "$" * 1000)
SLOW = (HANGS, r"\boxed{9^{9^{9^9}}}", r"\boxed{99999999!}", r"\boxed{(10^{10})!}")

REWARDS = """
from math_verify import parse, verify

def without_own_timeouts(text, data):
    gold, answer = (parse(each, parsing_timeout=None) for each in (data, text))
    return verify(gold, answer, timeout_seconds=None)

def with_own_timeouts(text, data):
    return verify(parse(data), parse(text))
"""


def reward(
    function: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> ContainedFunction:
    (folder / "math_rewards.py").write_text(REWARDS)
    monkeypatch.syspath_prepend(folder)
    warm_up = [(r"\boxed{\frac{1}{2}}", "$0.5$"), ("no", "$1$")]
    return contain(f"math_rewards:{function}", timeout=8, processes=2, warm_up=warm_up)


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / "containment.md")
    [program] = [block.text for block in page if "test-integrations" in block.reason]
    assert run_python(program, tmp_path) == "0.0 timeout"


@pytest.mark.parametrize("function", ["without_own_timeouts", "with_own_timeouts"])
def test_every_answer_has_a_status_in_time(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*RIGHT, *WRONG, *SLOW]
    with reward(function, tmp_path, monkeypatch) as contained:
        begin = time.monotonic()
        verdicts = contained.score_many((text, "$0.5$") for text in texts)
        assert time.monotonic() - begin < 10 * len(SLOW)
        statuses = [verdict.status for verdict in verdicts]
        assert statuses[: len(RIGHT)] == [Status.SOLVED] * len(RIGHT)
        assert statuses[len(RIGHT) : -len(SLOW)] == [Status.WRONG] * len(WRONG)
        if function == "without_own_timeouts":
            assert statuses[-len(SLOW)] is Status.TIMEOUT
        assert {*statuses[-len(SLOW) :]} <= {
            Status.WRONG,
            Status.TIMEOUT,
            Status.OUT_OF_MEMORY,
        }
        assert all(verdict.score == 0.0 for verdict in verdicts[-len(SLOW) :])
        assert "sandbox/restarts" not in contained.counts


@pytest.mark.parametrize(
    "program",
    [
        f"verify(parse('$4$'), parse({HANGS!r}, parsing_timeout=None), timeout_seconds=None)",
        f"str(parse({HANGS!r}, parsing_timeout=2))",
    ],
)
def test_by_itself_it_does_not_end(program: str) -> None:
    """The day this fails, the page has to say so."""
    program = f"from math_verify import parse, verify; {program}"
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", program], timeout=15, capture_output=True)
