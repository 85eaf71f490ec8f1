"""Each mistake in a call gets one sentence that names the argument and its value."""

import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import numpy as np
import pytest
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym, ReasoningGym
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.gym.streams import AsyncProblemStream
from reasoning_gym_environment.integrations.nemo_gym import nemo_gym_row
from reasoning_gym_environment.integrations.shared import (
    evaluation_problems,
    parse_recipe,
)
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import PoolSettings
from reasoning_gym_environment.scoring.grading import ScoringSettings
from reasoning_gym_environment.settings import EnvironmentSettings
from reasoning_gym_environment.tasks.facts import LIBRARY

RIGHT = Problem(
    recipe=Recipe(task="gcd", seed=4),
    question="How many? " * 30,
    oracle="4",
    entry=b"\x80\x04",
)
OLD = dataclasses.replace(
    RIGHT, recipe=Recipe(task="gcd", seed=4, library_version="0.1.0")
)
MESSAGE = {"role": "assistant", "content": "<answer>4</answer>"}


@pytest.fixture(scope="module")
async def gym(stock: WorkerStock) -> AsyncIterator[AsyncReasoningGym]:
    async with AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym:
        yield gym


@pytest.fixture(scope="module")
async def stream(gym: AsyncReasoningGym) -> AsyncIterator[AsyncProblemStream]:
    stream = await gym.stream(["gcd"])
    yield stream
    stream.close()


OPTIONS_OF_A_STREAM: list[tuple[dict[str, Any], str]] = [
    (
        {"complexty_mode": "curriculum"},
        "unknown setting 'complexty_mode'; did you mean complexity_mode",
    ),
    ({"modus": 1}, "unknown setting 'modus'; see StreamOptions"),
    ({"seed": "x"}, "seed must be an integer ≥ 0 and < 9007199254740992, "),
    ({"seed": -1}, "seed must be an integer ≥ 0 and "),
    (
        {"task_weights": {"gcd": "x"}},
        "task_weights.gcd must be a valid number, got 'x'",
    ),
    ({"task_weights": ["gcd"]}, "task_weights must be a mapping, got ['gcd"),
    (
        {"task_parameters": {"gcd": 3}},
        "task_parameters.gcd must be a mapping, got 3",
    ),
    ({"difficulty": "hard"}, "difficulty must be a number from 0 to 1, got "),
    ({"reserved": "what?"}, "reserved must be a list, got 'what?'"),
    ({"reserved": [RIGHT]}, "reserved.0 must be text, got Problem"),
    ({"replica": 3}, "replica must be text, got 3"),
]
MISTAKES: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    *(("stream", (["gcd"],), options, says) for options, says in OPTIONS_OF_A_STREAM),
    ("stream", ("gcd",), {}, "tasks must be a list, got 'gcd'"),
    ("stream", ([3],), {}, "tasks.0 must be text, got 3"),
    ("problems", ("gcd",), {"level": "3"}, "level must be an integer ≥ 0, got '3'"),
    ("problems", ("gcd",), {"level": 1.5}, "level must be an integer ≥ 0, got 1.5"),
    ("problems", ("gcd",), {"level": True}, "level must be an integer ≥ 0, got True"),
    (
        "problems",
        (["gcd", "lcm"],),
        {},
        "task must be one task, got ['gcd', 'lcm']: call it for ",
    ),
    ("problems", (None,), {}, "task must be text, got None"),
    (
        "problems",
        ("arithmetic",),
        {},
        "task: 'arithmetic' is a category: name one of its tasks, such as basic_arithmetic, or ",
    ),
    ("problems", ("gcd",), {"count": -1}, "count must be an integer ≥ 0, got -1"),
    ("problems", ("gcd",), {"count": 2.0}, "count must be an integer ≥ 0, got 2.0"),
    ("problems", ("gcd",), {"seed": "1"}, "seed must be an integer, got '1'"),
    (
        "problems",
        ("gcd",),
        {"parameters": [1]},
        "parameters must be a mapping, got [1]",
    ),
    (
        "problem",
        ('{"task": "gcd"}',),
        {},
        "invalid recipe: a recipe must be an object, got '{\"ta",
    ),
    ("problem", (RIGHT,), {}, "): pass its attribute recipe"),
    (
        "problem",
        ("gcd",),
        {},
        "invalid recipe: got 'gcd': gym.problems makes problems of a task",
    ),
    (
        "problem",
        ({"task": "gcd"},),
        {},
        "invalid recipe: a recipe needs a seed, got {'task': 'gcd",
    ),
    (
        "problem",
        ({"task": "gcd", "seed": 2, "levle": 3},),
        {},
        "invalid recipe: a recipe has no field 'levle'; did you mean level?",
    ),
    (
        "score",
        ([RIGHT], "4"),
        {},
        "problem must be one Problem or its recipe, got [Problem(",
    ),
    ("score", ("4", RIGHT), {}, "problem must be one Problem or its recipe, got '4'"),
    ("score", (RIGHT, MESSAGE), {}, "'role': 'assistant'}: pass its content"),
    (
        "score",
        (RIGHT, [MESSAGE]),
        {},
        "'role': 'assistant'}]: pass the last message's content",
    ),
    ("score", ("4", RIGHT), {}, "; completion must be text, got Problem("),
    ("score", (RIGHT, None), {}, "completion must be text, got None"),
    ("score", (RIGHT, b"4"), {}, "completion must be text, got b'4': decode it"),
    ("score", (OLD, "4"), {}, f"problem was made with {LIBRARY} 0.1.0, but "),
    (
        "score_many",
        ([RIGHT],),
        {},
        "pairs.0 must be a problem and its completion, got Problem(",
    ),
    (
        "score_many",
        ([(RIGHT, "4"), (RIGHT, "4", 1)],),
        {},
        "pairs.1 must be a problem and its ",
    ),
    ("score_many", ([(RIGHT, "4"), (RIGHT, 4)],), {}, "pairs.1.1 must be text, got 4"),
    ("score_many", ([(4, "4")],), {}, "pairs.0.0 must be one Problem or its recipe, "),
    ("score_many", (3,), {}, "pairs must be a list, got 3"),
    ("score_group", (RIGHT, "4"), {}, "completions must be a list, got '4'"),
    ("problems", ("gcd",), {"levle": 3}, "'levle'; did you mean level"),
    ("problems", ("gcd",), {"zzz": 3}, "'zzz'; see AsyncReasoningGym.problems"),
]
STREAM_MISTAKES: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    (
        "observe",
        (RIGHT,),
        {"solved": "3", "attempts": 8},
        "solved must be an integer ≥ 0, got '3'",
    ),
    (
        "observe",
        (RIGHT,),
        {"solved": 0.5, "attempts": 1},
        "solved must be an integer ≥ 0, got 0.5",
    ),
    (
        "observe",
        (RIGHT,),
        {"solved": 9, "attempts": 8},
        "solved must be from 0 to attempts (8), ",
    ),
    (
        "observe",
        ([RIGHT],),
        {"solved": 1, "attempts": 8},
        "problem must be one Problem or its re",
    ),
    (
        "observe",
        (Recipe(task="lcm", seed=2),),
        {"solved": 1, "attempts": 8},
        "problem is of lcm, which this stream never draws",
    ),
    ("state_dict", (RIGHT,), {}, "unfinished must be a list, got Problem("),
    (
        "state_dict",
        ([RIGHT.recipe],),
        {},
        "unfinished.0 must be a Problem, got Recipe(",
    ),
    ("load_state_dict", ("x",), {}, "state: the value must be object, got 'x'"),
    ("load_state_dict", ({},), {}, "state: object missing required field `sampler`"),
]


@pytest.mark.parametrize(("method", "arguments", "named", "says"), MISTAKES)
async def test_a_wrong_argument_of_a_gym_is_named(
    gym: AsyncReasoningGym,
    method: str,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    says: str,
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        await getattr(gym, method)(*arguments, **named)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(("method", "arguments", "named", "says"), STREAM_MISTAKES)
async def test_a_wrong_argument_of_a_stream_is_named(
    stream: AsyncProblemStream,
    method: str,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    says: str,
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        getattr(stream, method)(*arguments, **named)
    assert says in str(refused.value)


@pytest.mark.parametrize("of", [AsyncReasoningGym, ReasoningGym])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"task_modules": [5]}, "task_modules must be text or paths, got 5"),
        ({"processes": "2"}, "processes must be an integer ≥ 1, got '2'"),
        ({"processes": 0}, "processes must be an integer ≥ 1, got 0"),
        (
            {"solved_threshold": 2},
            "solved_threshold must be a number > 0 and ≤ 1, got 2",
        ),
        (
            {"verify_timeout": float("inf")},
            "verify_timeout must be a number > 0, got inf",
        ),
        (
            {"answer_tolerance": "no"},
            "answer_tolerance must be true or false, got 'no'",
        ),
    ],
)
async def test_a_wrong_option_of_a_gym_is_named(
    of: Callable[..., object], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        of(**options)
    assert str(refused.value) == says


async def test_the_blocking_gym_checks_as_well() -> None:
    gym = ReasoningGym()
    for call, says in (
        (lambda: gym.problems("gcd", count=-1), "count must be an integer ≥ 0, got -1"),
        (lambda: gym.score_many(3), "pairs must be a list, got 3"),  # type: ignore[arg-type]  # what is tested
        (lambda: gym.stream("gcd"), "tasks must be a list, got 'gcd'"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            call()
    gym.close()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: evaluation_problems(AsyncReasoningGym(), per_task=1),  # type: ignore[arg-type]  # what is tested
            "gym must be a ReasoningGym, got AsyncReasoningGym",
        ),
        (
            lambda: evaluation_problems(ReasoningGym(), "gcd", per_task=1),
            "tasks must be a list, got 'gcd'",
        ),
        (
            lambda: evaluation_problems(ReasoningGym(), per_task=0),
            "per_task must be an integer ≥ 1, got 0",
        ),
        (
            lambda: parse_recipe("x" * 999),
            "must be the text of a JSON object, got 'xxxx",
        ),
        (
            lambda: nemo_gym_row(RIGHT, "hi"),
            "messages must be a list, got 'hi'",
        ),  # type: ignore[arg-type]  # what is tested
        (lambda: nemo_gym_row([RIGHT], []), "problem must be a Problem, got [Problem("),  # type: ignore[arg-type]  # what is tested
    ],
)
async def test_adapters_name_a_wrong_argument(
    call: Callable[[], object], says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        call()
    assert says in str(refused.value)
    assert len(str(refused.value)) < 200


def test_an_argument_that_is_missing_or_given_twice_is_a_type_error() -> None:
    gym = AsyncReasoningGym()
    with pytest.raises(TypeError, match="missing a required argument: 'task'"):
        gym.problems(count="3")  # type: ignore[call-arg, arg-type]  # what is tested
    with pytest.raises(TypeError, match="multiple values for argument 'task'"):
        gym.problems("gcd", task="gcd")  # type: ignore[misc]  # what is tested


async def test_any_iterable_and_mapping_is_taken(gym: AsyncReasoningGym) -> None:
    parameters = MappingProxyType({"max_value": 9})
    [problem] = await gym.problems("gcd", parameters=parameters)
    pairs = ([each, "no answer"] for each in (problem, problem.recipe.to_json()))
    assert len(await gym.score_many(pairs)) == 2  # type: ignore[arg-type]  # lists as pairs
    AsyncReasoningGym(task_environment={"HOME": ""}.keys(), verify_timeout=np.int64(5))  # type: ignore[arg-type]  # what is tested


async def test_the_integers_of_numpy_are_taken(gym: AsyncReasoningGym) -> None:
    asked = await gym.problems(
        "gcd", level=np.int64(1), count=np.int32(2), seed=np.uint8(3)
    )  # type: ignore[arg-type]  # what is tested
    assert asked == await gym.problems("gcd", level=1, count=2, seed=3)


def test_type_checkers_let_modules_be_paths() -> None:
    hints = get_type_hints(AsyncReasoningGym.__init__)
    assert hints["task_modules"] == Iterable[str | Path]


@pytest.mark.parametrize("part", [AsyncReasoningGym, PoolSettings, ScoringSettings])
def test_defaults_are_those_of_the_options(part: type[Any]) -> None:
    options = EnvironmentSettings.model_fields
    for name, parameter in inspect.signature(part).parameters.items():
        if name in options and parameter.default is not parameter.empty:
            assert (parameter.default or None) == (options[name].default or None), name
