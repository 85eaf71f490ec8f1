"""InternBootcamp, from the checkout that INTERNBOOTCAMP names: its bootcamps are tasks."""

import os
from collections.abc import Iterator

import pytest
from page_blocks import ROOT

from reasoning_gym_environment import ReasoningGym, Status
from reasoning_gym_environment.errors import WorkerStartError

MODULE = str(ROOT / "examples" / "internbootcamp_tasks.py")
GYM = {
    "task_modules": [MODULE],
    "task_environment": ["INTERNBOOTCAMP"],
    "processes": 1,
}

pytestmark = [
    pytest.mark.integration,
    pytest.mark.processes,
    pytest.mark.skipif(
        "INTERNBOOTCAMP" not in os.environ,
        reason="INTERNBOOTCAMP names no checkout of InternBootcamp",
    ),
]


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with ReasoningGym(**GYM) as gym:
        yield gym


def test_every_bootcamp_with_parameters_is_a_task(gym: ReasoningGym) -> None:
    levels = {
        task.name: task.levels
        for task in gym.tasks()
        if task.category == "internbootcamp_tasks"
    }
    assert len(levels) > 1000
    assert levels["internbootcamp_Game24"] == 3


def test_harder_levels_have_the_larger_parameters(gym: ReasoningGym) -> None:
    """The checkout lists grids of 5, 6, 4 and 3 cells, in this order."""
    lengths = []
    for level in range(4):
        [problem] = gym.problems("internbootcamp_Bridges", level=level)
        lengths.append(len(problem.question))
    assert lengths == sorted(lengths)


@pytest.mark.parametrize(
    "form", ["{}", "```json\n{}\n```", "Final-answer: ```json\n{}\n```"]
)
def test_the_marks_of_an_answer_may_be_there_or_not(
    gym: ReasoningGym, form: str
) -> None:
    [maze] = gym.problems("internbootcamp_Maze", level=1)
    path = str(maze.oracle)
    right = gym.score(maze, f"<answer>{form.format(path)}</answer>")
    wrong = gym.score(maze, f"<answer>{form.format(path[:-8] + ']')}</answer>")
    assert (right.score, right.status) == (1, Status.SOLVED)
    assert wrong.score == 0


def test_an_item_without_an_answer_of_its_own_is_verified(gym: ReasoningGym) -> None:
    [problem] = gym.problems("internbootcamp_Game24", level=0)
    assert problem.oracle is None
    assert gym.score(problem, "<answer>1+1</answer>").score == 0


def test_a_recipe_gives_the_same_item_in_another_process(gym: ReasoningGym) -> None:
    # The constructor of the last seeds the generators from the clock.
    tasks = ["Game24", "Maze", "Chills", "KorLogicResolution"]
    problems = [gym.problems(f"internbootcamp_{task}", level=1)[0] for task in tasks]
    with ReasoningGym(**GYM) as other:
        again = [other.problem(problem.recipe) for problem in problems]
    assert [p.question for p in problems] == [p.question for p in again]
    assert [p.oracle for p in problems] == [p.oracle for p in again]


def test_an_error_says_what_is_missing() -> None:
    with (
        pytest.raises(WorkerStartError, match=r"task_environment.*INTERNBOOTCAMP"),
        ReasoningGym(task_modules=[MODULE], processes=1) as gym,
    ):
        gym.tasks()
