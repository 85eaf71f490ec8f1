"""What a newcomer gets wrong is found by mypy, by the call, or by both."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import newcomers_mistakes
import pytest

from reasoning_gym_environment import Problem, ReasoningGym

ROOT = Path(__file__).parents[2]
FILE = Path(newcomers_mistakes.__file__)
MISTAKES = [
    mistake
    for mistake in vars(newcomers_mistakes).values()
    if inspect.isfunction(mistake)
]

Mistake = Callable[[ReasoningGym, Problem], None]


def finders(mistake: Mistake) -> tuple[set[str], str]:
    """Return who finds a mistake, and what the call says."""
    who, _, says = (mistake.__doc__ or "").partition(": ")
    return {"mypy", "call"} if who == "Both" else {who.lower()}, says.rstrip(".")


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with ReasoningGym(processes=1) as gym:
        yield gym


def test_there_are_fifteen() -> None:
    assert len(MISTAKES) == 15


@pytest.mark.processes
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_call_says_what_is_wrong(mistake: Mistake, gym: ReasoningGym) -> None:
    who, says = finders(mistake)
    assert "call" in who
    stream = gym.stream(["gcd"], complexity_mode="curriculum")
    with pytest.raises(Exception, match=re.escape(says)):
        mistake(gym, stream.next())


@pytest.mark.nightly
@pytest.mark.processes
def test_mypy_finds_what_types_can_say(tmp_path: Path) -> None:
    command = f"{sys.executable} -m mypy --strict --config-file= --follow-imports silent".split()
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path), str(FILE)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    lines = {int(line) for line in re.findall(r":(\d+): error: ", done.stdout)}
    found = set()
    for mistake in MISTAKES:
        source, first = inspect.getsourcelines(mistake)
        if lines & {*range(first, first + len(source))}:
            found.add(mistake.__name__)
    assert found == {each.__name__ for each in MISTAKES if "mypy" in finders(each)[0]}
