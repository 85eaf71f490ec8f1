"""Shared helpers of the adapters, and TRL's dataset and reward without TRL."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from datasets import concatenate_datasets
from integration_programs import ATROPOS, UNMAKABLE

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.prompts import (
    BOXED_SYSTEM_PROMPTS,
    SYSTEM_PROMPTS,
    build_messages,
)
from reasoning_gym_environment.integrations.shared import (
    after,
    evaluation_problems,
    parse_recipe,
    shared_gym,
)
from reasoning_gym_environment.integrations.trl import (
    FAR_AHEAD,
    ReasoningGymReward,
    problem_dataset,
    stream_dataset,
    text_of,
)
from reasoning_gym_environment.problems.seeds import (
    evaluation_recipes,
    evaluation_recipes_at,
)
from reasoning_gym_environment.tasks.catalogue import bundled_snapshot

pytestmark = pytest.mark.processes
OWN_TASKS = Path(__file__).parents[1] / "support" / "programs" / "own_tasks.py"


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with ReasoningGym(processes=1) as gym:
        yield gym


def test_held_out_problems_are_those_of_evaluate(gym: ReasoningGym) -> None:
    problems = evaluation_problems(gym, ["lcm", "gcd"], per_task=2, seed=3)
    recipes = evaluation_recipes(3, ["gcd", "lcm"], 2)
    assert problems == [gym.problem(recipe, split="eval") for recipe in recipes]


def test_categories_expand_to_their_tasks(gym: ReasoningGym) -> None:
    tasks = {
        p.recipe.task for p in evaluation_problems(gym, ["probability"], per_task=1)
    }
    assert tasks == {"coin_flip"}


def test_a_difficulty_between_two_levels_asks_what_evaluate_asks(
    gym: ReasoningGym,
) -> None:
    ladder = bundled_snapshot().ladders["chain_sum"].levels
    planned = evaluation_recipes_at(
        [0.44], ladder, eval_seed=3, task="chain_sum", per_difficulty=20
    )
    problems = evaluation_problems(
        gym, ["chain_sum"], per_task=20, difficulty=0.44, seed=3
    )
    assert {problem.recipe.level for problem in problems} == {4, 5}
    asked = [gym.problem(recipe, split="eval") for recipe, _ in planned]
    assert {problem.recipe.seed for problem in problems} == {
        problem.recipe.seed for problem in asked
    }


def test_a_task_with_one_level_is_asked_at_its_default() -> None:
    with ReasoningGym(processes=1, task_modules=[str(OWN_TASKS)]) as gym:
        [problem] = evaluation_problems(gym, ["odd"], per_task=1, difficulty=0.5)
    assert problem.recipe.level is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"difficulty": -0.1}, r"^difficulty must be a number from 0 to 1, got -0\.1$"),
        ({"difficulty": 1.1}, r"^difficulty must be a number from 0 to 1, got 1\.1$"),
        ({"per_task": 0}, "^per_task must be an integer ≥ 1, got 0$"),
        ({"tasks": ["gdc"]}, "unknown task or category 'gdc'; did you mean gcd"),
    ],
)
def test_wrong_arguments_are_named(
    changes: dict[str, Any], says: str, gym: ReasoningGym
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        evaluation_problems(gym, **{"tasks": ["gcd"], "per_task": 1, **changes})


@pytest.mark.parametrize("text", ["", "gcd", "[1]", None])
def test_an_invalid_recipe_text_is_quoted(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_recipe(text)
    assert (
        str(refused.value)
        == f"a recipe must be the text of a JSON object, got {text!r}"
    )


def test_a_recipe_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be the text of a JSON object"):
        parse_recipe("[" * 200_000)


@pytest.mark.parametrize("marker", ["", 5])
def test_a_marker_that_no_reply_can_follow_is_refused(marker: Any) -> None:
    with pytest.raises(ConfigurationError, match="reply_after must be what a reply"):
        after("analysis assistantfinal 4", marker)


def test_the_shared_gym_is_one_per_process() -> None:
    assert shared_gym() is shared_gym()


def test_a_dataset_has_messages_and_recipes_as_separate_texts(
    gym: ReasoningGym,
) -> None:
    problems = [gym.problems(task, level=1)[0] for task in ("gcd", "chain_sum")]
    parts = [problem_dataset([problem], system_prompt="direct") for problem in problems]
    rows = list(concatenate_datasets(parts))
    for row, problem in zip(rows, problems, strict=True):
        assert row["prompt"] == build_messages(
            SYSTEM_PROMPTS["direct"], problem.question
        )
        assert json.loads(row["recipe"]) == problem.recipe.to_json()
        assert row["task"] == problem.recipe.task


def test_a_dataset_asks_for_answers_where_its_gym_finds_them() -> None:
    with ReasoningGym(processes=1, answer_format="boxed") as boxed:
        [problem] = boxed.problems("gcd", level=1)
        stream = boxed.stream(["gcd"])
        rows = [
            *problem_dataset([problem], answer_format=boxed.answer_format),
            next(iter(stream_dataset(stream))),
        ]
        assert boxed.score(problem, rf"\boxed{{{problem.oracle}}}").solved
    for row in rows:
        assert row["prompt"][0]["content"] == BOXED_SYSTEM_PROMPTS["think"]


@pytest.mark.parametrize("answer_format", ["boxed", "brackets"])
def test_the_shared_gym_has_the_answer_format_of_a_variable(answer_format: str) -> None:
    program = (
        "from reasoning_gym_environment.integrations.shared import score_by_recipe\n"
        'recipe = \'{"task": "gcd", "seed": 2}\'\n'
        "texts = (r'\\boxed{1}', '<answer>1</answer>')\n"
        "print(*(score_by_recipe(recipe, text).status.value for text in texts))"
    )
    environment = {**os.environ, "REASONING_GYM_ANSWER_FORMAT": answer_format}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer_format == "boxed":
        assert run.stdout.split() == ["wrong", "no_answer"], run.stderr
    else:
        assert "must be one of tags, boxed, tags-or-boxed, got 'brackets'" in run.stderr


async def test_a_batch_is_scored_in_order_and_logged(gym: ReasoningGym) -> None:
    first, second = gym.problems("gcd", level=1, count=2)
    recipes = [row["recipe"] for row in problem_dataset([first, second, first])]
    logged: dict[str, Any] = {}
    rewards = await ReasoningGymReward(gym)(
        prompts=["not used"] * 4,
        completions=[
            [{"role": "assistant", "content": f"<answer>{first.oracle}</answer>"}],
            f"<answer>{second.oracle}</answer>",
            "no idea",
            "<answer>x</answer>",
        ],
        recipe=[*recipes, UNMAKABLE],
        log_extra=logged.__setitem__,
        log_metric=logged.__setitem__,
        trainer_state=None,
    )
    assert rewards == [1.0, 1.0, 0.0, None]
    assert logged == {
        "status": ["solved", "solved", "no_answer", "unscored"],
        "level": 1.0,
    }


def test_a_trainer_that_takes_problems_far_ahead_is_warned(
    gym: ReasoningGym, caplog: pytest.LogCaptureFixture
) -> None:
    stream = gym.stream(["gcd"], complexity_mode="curriculum", group_size=2)
    rows = list(itertools.islice(iter(stream_dataset(stream)), FAR_AHEAD + 1))
    assert {row["task"] for row in rows} == {"gcd"}
    [said] = [m for m in caplog.messages if "shuffle_dataset=False" in m]
    assert said.startswith(f"TRL took {FAR_AHEAD} problems before it scored one")


@dataclass
class Trainer:
    """What TRL's trainer is for a reward function."""

    num_generations: int
    logged: dict[str, object] = field(default_factory=dict)

    def log(self, name: str, value: object) -> None:
        self.logged[name] = value


async def test_a_stream_has_the_group_size_of_trl(gym: ReasoningGym) -> None:
    trainer = Trainer(num_generations=4)
    reward = ReasoningGymReward(gym)

    async def train(**options: Any) -> float:
        stream = gym.stream(["gcd"], complexity_mode="curriculum", **options)
        for row in itertools.islice(stream_dataset(stream), 40):
            await reward(
                completions=["<answer>0</answer>"] * 4,
                recipe=[row["recipe"]] * 4,
                log_extra=trainer.log,
                log_metric=trainer.log,
            )
        return stream.levels()["gcd"].level

    assert await train() == await train(group_size=4) == 0.0
    with pytest.raises(ConfigurationError, match=r"is 8, but .* 4 completions"):
        await train(group_size=8)


async def test_the_reward_can_be_called_outside_of_trl(gym: ReasoningGym) -> None:
    [row] = problem_dataset(gym.problems("gcd", level=0))
    rewards = await ReasoningGymReward(gym)(
        completions=[f"<answer>{row['oracle']}</answer>", "?"],
        recipe=[row["recipe"]] * 2,
    )
    assert rewards == [1.0, 0.0]


def test_a_dataset_needs_a_stream(gym: ReasoningGym) -> None:
    with pytest.raises(ConfigurationError, match=r"ProblemStream, got .*Problem"):
        stream_dataset(gym.problems("gcd"))  # type: ignore[arg-type]  # a mistake of its user


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("<answer>4</answer>", "<answer>4</answer>"),
        ([{"role": "assistant", "content": "4"}], "4"),
        (
            [
                {"role": "assistant", "content": "a"},
                {"role": "assistant", "content": "b"},
            ],
            "b",
        ),
        ([{"role": "assistant", "reasoning_content": "hm", "content": None}], ""),
        ([{"role": "assistant", "reasoning_content": "hm"}], ""),
    ],
)
def test_the_last_message_is_scored(
    completion: str | list[dict[str, str]], text: str
) -> None:
    assert text_of(completion) == text


def test_adapters_do_not_import_atropos() -> None:
    package = "reasoning_gym_environment.integrations"
    modules = ", ".join(f"{package}.{name}" for name in ("nemo_gym", "shared", "trl"))
    program = f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & ATROPOS


def test_adapters_have_the_modules_of_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REASONING_GYM_TASK_MODULES", str(OWN_TASKS))
    with shared_gym.__wrapped__() as gym:
        [problem] = evaluation_problems(gym, ["own_tasks"], per_task=1, difficulty=0)
    assert problem.recipe.parameters == {"digits": 1}
