"""The tasks of examples/own_tasks.py, in worker processes, and what their verifiers accept."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from page_blocks import ROOT

from reasoning_gym_environment import Problem, ReasoningGym

EXAMPLE = str(ROOT / "examples" / "own_tasks.py")
LEVELS = {"due_date": 6, "free_slot": 6, "running_total": 8}

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with ReasoningGym(task_modules=[EXAMPLE], processes=1) as gym:
        yield gym


def solved(gym: ReasoningGym, problem: Problem, answers: list[str]) -> list[str]:
    """The answers to one problem that are right, beside its own."""
    texts = [answer.format(*str(problem.oracle).split()) for answer in answers]
    scores = gym.score_many(
        (problem, f"<answer>{t}</answer>") for t in [*texts, problem.oracle]
    )
    assert scores[-1].score == 1.0
    return [
        answer for answer, score in zip(answers, scores, strict=False) if score.solved
    ]


def test_only_its_own_answer_is_right_at_every_level(gym: ReasoningGym) -> None:
    own = {
        task.name: task.levels for task in gym.tasks() if task.category == "own_tasks"
    }
    assert own == LEVELS
    for task, levels in LEVELS.items():
        for level in range(levels):
            one, two = gym.problems(task, level=level, count=2, seed=3)
            pairs = [
                (one, f"<answer>{problem.oracle}</answer>") for problem in (one, two)
            ]
            assert [score.solved for score in gym.score_many(pairs)] == [True, False]


def test_a_date_may_have_any_usual_form(gym: ReasoningGym) -> None:
    right = ["{0} {1} {2}", "{1} {0}, {2}", "{0}th of {1} {2}.", "{1} {0} {2}"]
    wrong = ["{0} {1}", "{0} {1} {2} or 1 May 2020", "not {0} {1} {2}", "soon", ""]
    [problem] = gym.problems("due_date", seed=1)
    assert solved(gym, problem, right + wrong) == right


@pytest.mark.nightly
def test_a_slot_is_right_wherever_all_are_free(gym: ReasoningGym) -> None:
    most = 0
    for problem in gym.problems("free_slot", count=3, seed=1):
        busy, _, asked = problem.question.partition("Work is from 08:00 to 18:00")
        bounds = [60 * int(h) + int(m) for h, m in re.findall(r"(\d\d):(\d\d)", busy)]
        [lasts] = map(int, re.findall(r"meet for (\d+) minutes", asked))
        free = [
            f"{begin // 60:02}:{begin % 60:02}"
            for begin in range(8 * 60, 18 * 60 - lasts + 1, 5)
            if all(
                begin + lasts <= a or begin >= b
                for a, b in zip(bounds[::2], bounds[1::2], strict=True)
            )
        ]
        minutes = (*range(0, 60, 5), 31)
        times = [
            f"{hour:02}:{minute:02}" for hour in range(7, 20) for minute in minutes
        ]
        assert solved(gym, problem, times) == free
        most = max(most, len(free))
    assert most > 1


def test_levels_follow_the_answers_beside_the_library(gym: ReasoningGym) -> None:
    options = {
        "complexity_mode": "curriculum",
        "task_weights": {"own_tasks": 2},
        "group_size": 4,
    }
    stream = gym.stream(["own_tasks", "chain_sum"], **options)
    for _ in range(80):
        problem = stream.next()
        right = problem.recipe.task == "due_date"
        stream.observe(problem, solved=4 * right, attempts=4)
    levels = stream.levels()
    assert levels["due_date"].level > 4
    assert levels["running_total"].level < 2
    assert all(levels[task].groups for task in (*LEVELS, "chain_sum"))


def test_the_program_prints_a_problem_of_each() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nsolved\n") == len(LEVELS)
