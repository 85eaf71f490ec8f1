"""Validation of the recipes in a checkpoint and of task parameters."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.problems import repeats
from reasoning_gym_environment.problems.options import TaskOptions
from reasoning_gym_environment.problems.split import SplitProblems
from reasoning_gym_environment.problems.training import TrainingProblems
from reasoning_gym_environment.sandbox.pool import TaskPool

pytestmark = pytest.mark.asyncio(loop_scope="session")

TASK = "simple_integration"


async def started(
    pool: TaskPool, counts: Counter[str], *, task: str = TASK, **changes: Any
) -> TrainingProblems:
    options = TaskOptions(**changes)
    problems = TrainingProblems(
        options,
        pool,
        counts,
        tasks=[task],
        seed=1,
        split=SplitProblems.of_pool(pool, counts, skip_faulty_items=True),
        max_token_length=1000,
    )
    await problems.prepare(with_ladders=False)
    problems.start_stream("a", prefetch=1)
    return problems


async def test_code_in_a_checkpoints_recipe_does_not_run(
    pool: TaskPool, short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    problems = await started(pool, Counter())
    code = f"__import__('os').system('id > {short_path}/ran')"
    hostile = {
        "task": TASK,
        "seed": 2,
        "level": None,
        "parameters": {"symbols": [code]},
    }
    problems.load_state_dict({**problems.state_dict([]), "ahead": [hostile]})
    problem = await problems.next()
    [verdict] = await pool.verify(problem, ["0"])
    problems.close()
    assert verdict.score == 0.0
    assert problem.recipe.parameters == {}
    assert "symbols can't be" in caplog.text
    assert list(short_path.iterdir()) == []


@pytest.mark.parametrize(
    "recipe",
    [
        None,
        {"task": TASK},
        {"task": TASK, "seed": -1},
        {"task": TASK, "seed": 2, "more": 1},
        {"task": TASK, "seed": 2, "parameters": {"symbols": {"a": {}}}},
    ],
)
async def test_a_checkpoint_with_an_invalid_recipe_is_refused(
    pool: TaskPool, recipe: Any
) -> None:
    problems = await started(pool, Counter())
    with pytest.raises(
        ConfigurationError, match="the checkpoint holds an invalid problem"
    ):
        problems.load_state_dict({**problems.state_dict([]), "ahead": [recipe]})
    problems.close()


async def test_hostile_task_parameters_are_refused(
    pool: TaskPool, short_path: Path
) -> None:
    itself: list[Any] = []
    itself.append(itself)
    for value in (
        [f"__import__('os').mkdir('{short_path}/ran')"],
        itself,
        10**300,
        {"a": 1},
    ):
        with pytest.raises(
            ConfigurationError, match=f"no item of {TASK} with .*symbols"
        ):
            await started(pool, Counter(), task_parameters={TASK: {"symbols": value}})
    assert list(short_path.iterdir()) == []


async def test_a_stream_tells_of_a_task_with_few_questions(
    pool: TaskPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(repeats, "WATCHED", 20)
    few = {"min_numbers": 2, "max_numbers": 2, "min_value": 1, "max_value": 2}
    problems = await started(pool, Counter(), task="gcd", task_parameters={"gcd": few})
    asked = {(await problems.next()).question for _ in range(20)}
    problems.close()
    assert len(asked) == 4
    assert "Few questions: 4 of the first 20 problems of gcd at its default differ" in (
        caplog.text
    )


async def test_a_state_from_before_the_split_by_question_continues_with_a_line(
    pool: TaskPool, caplog: pytest.LogCaptureFixture
) -> None:
    problems = await started(pool, Counter(), task="gcd")
    state = problems.state_dict([])
    problems.load_state_dict(state)
    assert "before questions decided" not in caplog.text
    del state["split_rule"]
    problems.load_state_dict(state)
    assert "before questions decided" in caplog.text
    assert (await problems.next()).recipe.task == "gcd"
    problems.close()
