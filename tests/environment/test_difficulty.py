"""Difficulty as users set it: modes, parameters of single tasks, the curriculum's moves."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.records import Problem

TASK = "number_sorting"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "tasks.md"


def config_example() -> str:
    description = (
        ReasoningGymEnvConfig.model_fields["task_parameters"].description or ""
    )
    return description[description.index("{") : description.rindex("}") + 1]


def page_example() -> str:
    return PAGE.read_text().split("--env.task_parameters '")[1].split("'")[0]


async def problems(env: ReasoningGymEnv, count: int) -> list[Problem]:
    return [await env.get_next_item() for _ in range(count)]


@pytest.fixture
async def url(tokenizer: Any) -> Any:
    async with PolicyServer(
        ScriptedPolicy(["<answer>[]</answer>"]), tokenizer
    ) as server:
        yield server.url


async def test_without_a_mode_problems_have_the_default_configuration(
    bench: Any, url: str
) -> None:
    async with bench.environment(url) as env:
        [problem] = await problems(env, 1)
        assert problem.recipe.level is None
        assert problem.recipe.parameters == {}
        assert env.get_curriculum_stats() == {"curriculum_mode": False}


async def test_a_mode_and_a_difficulty_choose_levels(bench: Any, url: str) -> None:
    for expected, mode in (  # gcd has six levels
        ({2, 3}, {"complexity_mode": "fixed", "difficulty": 0.5}),
        ({0, 1, 2, 3, 4, 5}, {"complexity_mode": "random"}),
    ):
        async with bench.environment(url, include_tasks="gcd", **mode) as env:
            assert {p.recipe.level for p in await problems(env, 40)} == expected


async def test_the_ends_of_the_ladder_are_easy_and_hard(bench: Any, url: str) -> None:
    lengths = []
    for end in (0.0, 1.0):
        settings = {
            "include_tasks": TASK,
            "complexity_mode": "fixed",
            "difficulty": end,
        }
        async with bench.environment(url, max_token_length=16000, **settings) as env:
            made = await problems(env, 5)
        lengths.append(sum(len(problem.question) for problem in made))
    assert lengths[1] > 2 * lengths[0]


async def test_parameters_of_a_task_win_over_its_level(bench: Any, url: str) -> None:
    settings = {
        "include_tasks": "chain_sum,gcd",
        "complexity_mode": "fixed",
        "difficulty": 0,
        "task_parameters": {"chain_sum": {"min_terms": 6, "max_terms": 6}},
    }
    async with bench.environment(url, **settings) as env:
        sums = [
            each for each in await problems(env, 10) if each.recipe.task == "chain_sum"
        ]
    assert sums
    for problem in sums:
        _, _, terms = problem.question.partition(":")
        assert len(terms.replace("-", "+").split("+")) == 6
        assert problem.recipe.parameters["max_digits"] == 1


async def test_bad_parameters_stop_the_start(bench: Any, url: str) -> None:
    typo = {"chain_sum": {"max_term": 3}}
    negative, large = {"gcd": {"min_numbers": -3}}, {"gcd": {"min_value": 50000}}
    level = {"complexity_mode": "fixed", "difficulty": 0}
    for said, parameters, others in (
        ("unknown task 'chain_sun'; did you mean", {"chain_sun": {}}, {}),
        (
            "chain_sum has no parameter 'max_term'; did you mean max_terms, min_terms",
            typo,
            {},
        ),
        ("gcd has no parameter 'zzz'; it has min_numbers", {"gcd": {"zzz": 3}}, {}),
        ("no item of gcd with {'min_numbers': -3}: gcd: AssertionError", negative, {}),
        ("no item of gcd with {'min_value': 50000} at its level 0", large, level),
    ):
        async with bench.unprepared(url, task_parameters=parameters, **others) as env:
            with pytest.raises(ConfigurationError) as raised:
                await env.setup()
        assert said in str(raised.value)


def level(env: ReasoningGymEnv) -> float:
    """Where the one task in use stands."""
    [details] = env.get_curriculum_stats()["task_details"].values()
    position: float = details["level"]
    return position


async def test_the_curriculum_follows_results_down_and_up(
    bench: Any, knows_all: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "reasoning_gym_environment")
    settings = {
        "include_tasks": TASK,
        "complexity_mode": "curriculum",
        "max_token_length": 16000,
    }
    async with bench.playing(knows_all, **settings) as env:
        positions = [level(env)]
        for taught, groups in ((False, 3), (True, 90)):
            for problem in await problems(env, groups):
                if taught:
                    knows_all.answers[problem.question] = problem.oracle
                await env.collect_trajectories(problem)
            positions.append(level(env))
        stats = env.get_curriculum_stats()
    middle, low, high = positions
    assert low < middle
    assert high > low
    assert stats["tasks_with_adjustments"] == stats["total_tasks_tracked"] == 1
    assert json.loads(json.dumps(stats)) == stats
    moves = [
        r.getMessage()
        for r in caplog.records
        if r.getMessage().startswith("Curriculum: ")
    ]
    assert len(moves) == env.statistics.counts["curriculum/moves"] > 1


async def test_questions_that_do_not_fit_cap_the_ladder(
    bench: Any, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "include_tasks": TASK,
        "complexity_mode": "random",
        "max_token_length": 1500,
    }
    async with bench.environment(url, **settings) as env:
        drawn = [p.recipe.level for p in await problems(env, 100)]
    capped = [r.getMessage() for r in caplog.records if "capping" in r.getMessage()]
    assert capped
    top = min(int(re.findall(r"below level (\d+)", message)[0]) for message in capped)
    assert set(drawn[-30:]) == set(range(top))
    assert len(capped) == len(set(capped))


async def test_one_long_question_caps_nothing(bench: Any, url: str) -> None:
    """Above level 0, most questions of the task fit into this budget and some don't."""
    settings = {
        "include_tasks": "rearc",
        "complexity_mode": "random",
        "max_token_length": 2500,
    }
    async with bench.environment(url, **settings) as env:
        drawn = [p.recipe.level for p in await problems(env, 150)]
    assert env.statistics.counts["sampling/prompts_too_long"] > 0
    assert set(drawn[-60:]) == set(range(4))


async def test_the_first_level_is_found_where_all_above_are_too_long(
    bench: Any, url: str
) -> None:
    settings = {"complexity_mode": "fixed", "difficulty": 1.0, "max_token_length": 700}
    async with bench.environment(url, include_tasks=TASK, **settings) as env:
        levels = {p.recipe.level for p in await problems(env, 3)}
    assert max(level or 0 for level in levels) < 7


@pytest.mark.parametrize("text", [config_example(), page_example()])
async def test_the_parameters_shown_as_examples_fit_every_level(
    bench: Any, url: str, text: str
) -> None:
    settings = {"complexity_mode": "random", "task_parameters": text}
    async with bench.environment(url, include_tasks="chain_sum", **settings) as env:
        assert await problems(env, 1)
