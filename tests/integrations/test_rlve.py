"""RLVE: its environments are tasks, its rewards are scores, and a run has them at its levels."""

import asyncio
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import ROOT

from reasoning_gym_environment import Problem, ReasoningGym, Score, Status
from reasoning_gym_environment.storage.dumps import read_dump

identifier2controller = pytest.importorskip(
    "Gym.parameter_controllers"
).identifier2controller

MODULE = str(ROOT / "examples" / "rlve_tasks.py")

TASKS = [
    "rlve_FixedModK_Selection_Counting",
    "rlve_LCM",
    "rlve_MinNoSolutionLinearDiophantineEquation",
    "rlve_Multiplication",
    "rlve_PairMoreOneCounting",
    "rlve_PrefixConcatenation",
    "rlve_SharedSubstringCounting",
    "rlve_Sorting",
    "rlve_SumGCD",
    "rlve_SumPHIInterval",
]
"""Tasks with short questions. `prove` proves all of them, and needs minutes for each."""

STEPS = 1
"""Of the trainer, with a batch of 16 groups that have signal: about 1 in 20 has."""

pytestmark = [pytest.mark.integration, pytest.mark.processes]


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with ReasoningGym(task_modules=[MODULE], processes=1) as gym:
        yield gym


def scores(gym: ReasoningGym, problem: Problem, *answers: str) -> list[Score]:
    return gym.score_many((problem, f"<answer>{text}</answer>") for text in answers)


def test_every_environment_is_a_task_with_the_levels_of_its_difficulty(
    gym: ReasoningGym,
) -> None:
    tasks = [task for task in gym.tasks() if task.category == "rlve_tasks"]
    assert len(tasks) == 400
    assert {task.levels for task in tasks} == {10}
    for level in (0, 1, 9):
        controller = identifier2controller["ABProgramSimulation"]()
        for _ in range(level):
            controller.update()
        [parameters] = controller.get_parameter_list()
        [problem] = gym.problems("rlve_ABProgramSimulation", level=level)
        [program] = re.findall("the program: (.*)", problem.question)
        assert len(program.split()) == parameters["N"]


def test_a_recipe_gives_the_same_item_in_another_process(gym: ReasoningGym) -> None:
    tasks = ["rlve_Sorting", "rlve_KnightsAndKnaves", "rlve_MaximumWeightMatching"]
    problems = [gym.problems(task, level=4)[0] for task in tasks]
    with ReasoningGym(task_modules=[MODULE], processes=1) as other:
        again = [other.problem(problem.recipe) for problem in problems]
    assert [p.question for p in problems] == [p.question for p in again]
    assert [p.oracle for p in problems] == [p.oracle for p in again]


def test_rewards_are_scores_from_0_to_1(gym: ReasoningGym) -> None:
    [problem] = gym.problems("rlve_Sorting", level=3)
    numbers = str(problem.oracle).split()
    swapped = " ".join([numbers[-1], *numbers[1:-1], numbers[0]])
    right, partly, other_form, no_number = scores(
        gym, problem, " ".join(numbers), swapped, " ".join(numbers[1:]), "none"
    )
    assert right.status is Status.SOLVED
    assert 0 < partly.score < 0.1
    assert other_form.score == no_number.score == 0  # RLVE's reward is -1


def test_an_answer_within_the_tolerance_of_an_environment_has_full_credit(
    gym: ReasoningGym,
) -> None:
    """RLVE's reward of a rounded root is below 1, but above the item's own threshold."""
    [problem] = gym.problems("rlve_RootExtraction", level=9)
    root = float(str(problem.oracle))
    near, far = scores(gym, problem, f"{root + 1e-6:.7f}", f"{root + 0.1:.5f}")
    assert near.score == 1
    assert 0 < far.score < 1


def test_an_item_whose_right_answer_is_empty_is_drawn_again() -> None:
    """A third of BinaryAlternation's easiest items need no swap."""
    with ReasoningGym(
        task_modules=[MODULE], processes=1, skip_faulty_items=False
    ) as gym:
        problems = gym.problems("rlve_BinaryAlternation", level=0, count=20)
    assert all(problem.oracle for problem in problems)


def test_any_way_through_a_maze_is_right(gym: ReasoningGym) -> None:
    """The file says of such environments why an answer near the reference answer is right."""
    [problem] = gym.problems("rlve_Maze", level=0)
    ways = {"".join(way) for way in itertools.permutations(str(problem.oracle))}
    solved = [
        score
        for score in scores(gym, problem, *sorted(ways))
        if score.status is Status.SOLVED
    ]
    assert 1 < len(solved) < len(ways)


def test_prove_refuses_an_environment_that_pays_nobody(tmp_path: Path) -> None:
    """Its scorer reads the tags as a part of the answer."""
    file = tmp_path / "proof.json"
    options = ["--task-modules", MODULE, "--items", "20", "--seconds", "20"]
    command = [sys.executable, "-m", "reasoning_gym_environment", "prove"]
    done = subprocess.run(
        [*command, "rlve_PolyaModel", *options, "-o", str(file)], check=False
    )
    assert done.returncode == 1
    [task] = json.loads(file.read_bytes())["tasks"].values()
    assert task["checks"]["solvable"]["verdict"] == "failed"
    assert task["oracle"] == 0


async def test_serve_trains_a_small_model_on_ten_of_them_at_several_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Problems, scores and rows arrive. Nothing is asked of what the model learns."""
    torch = pytest.importorskip("torch", reason="the small model needs PyTorch")
    torch.set_num_threads(1)  # the other core is the environment's
    monkeypatch.syspath_prepend(ROOT / "examples" / "learn")
    import cold_start
    from endpoint import served
    from loop import Loop
    from model import Policy, build_model, build_tokenizer

    context = 128
    loop = Loop(
        folder=tmp_path,
        tokenizer=tmp_path / "tokenizer",
        tasks=",".join(TASKS),
        task_modules=MODULE,
        items=1,
        seed=0,
        context=context,
    )
    messages = await loop.demonstrations(100, levels="0")
    texts = [message["content"] for each in messages for message in each]
    tokenizer = build_tokenizer(texts, loop.tokenizer)
    policy = Policy(build_model(len(tokenizer), 0, context), tokenizer, context)
    examples = [cold_start.encode(each, tokenizer) for each in messages]
    await asyncio.to_thread(cold_start.train, policy, examples, passes=4, seed=0)
    async with served(policy) as endpoint:
        batches = []
        await loop.reinforce(
            policy,
            endpoint.url,
            lambda metrics: batches.append(metrics) is None,
            steps=STEPS,
            complexity_mode="curriculum",
        )
    assert len([metrics for metrics in batches if metrics]) == STEPS
    rows = [
        row
        for dump in (tmp_path / "dumps").glob("*.jsonl")
        for row in read_dump(dump).rows
    ]
    assert {row["recipe"]["task"] for row in rows} == {*TASKS}
    assert len({row["recipe"]["level"] for row in rows}) > 1
    statuses = {rollout["status"] for row in rows for rollout in row["rollouts"]}
    assert {Status.SOLVED, Status.WRONG} <= statuses
