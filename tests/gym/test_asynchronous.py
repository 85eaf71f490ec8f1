"""Problems, scores and streams of the async client."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym, Score
from reasoning_gym_environment.errors import ConfigurationError, PoolClosedError
from reasoning_gym_environment.problems.options import StreamOptions
from reasoning_gym_environment.problems.replay import WAIT
from reasoning_gym_environment.records import FaultKind, Problem, Recipe, Status
from reasoning_gym_environment.scoring.extraction import AnswerFormat
from reasoning_gym_environment.tasks.catalogue import UnknownTaskError


@pytest.fixture(scope="module")
async def gym(stock: WorkerStock) -> AsyncIterator[AsyncReasoningGym]:
    async with AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym:
        yield gym


def right(problem: Problem) -> str:
    return f"<think>easy</think><answer>{problem.oracle}</answer>"


async def test_the_same_arguments_give_the_same_problems(
    gym: AsyncReasoningGym,
) -> None:
    first = await gym.problems("chain_sum", level=2, count=3, seed=5)
    assert first == await gym.problems("chain_sum", level=2, count=3, seed=5)
    assert [p.recipe.level for p in first] == [2, 2, 2]
    assert len({p.question for p in first}) == 3
    assert first[:2] == await gym.problems("chain_sum", level=2, count=2, seed=5)


async def test_training_and_evaluation_share_no_seed(gym: AsyncReasoningGym) -> None:
    for split in ("train", "eval"):
        problems = await gym.problems("gcd", count=4, split=split)
        assert {p.recipe.is_evaluation for p in problems} == {split == "eval"}


async def test_parameters_override_the_level(gym: AsyncReasoningGym) -> None:
    own = {"min_terms": 7, "max_terms": 7}
    [problem] = await gym.problems("chain_sum", level=0, parameters=own)
    assert own.items() <= dict(problem.recipe.parameters).items()
    assert sum(sign in "+-" for sign in problem.question.split()) == 6


async def test_a_completion_is_scored_as_in_training(gym: AsyncReasoningGym) -> None:
    [problem] = await gym.problems("gcd")
    score = await gym.score(problem, right(problem))
    assert (score.score, score.status, score.answer) == (
        1.0,
        Status.SOLVED,
        problem.oracle,
    )
    assert score.solved
    assert score.to_json()["status"] == "solved"
    none = await gym.score(problem, "It is four.")
    assert (none.score, none.status, none.answer) == (0.0, Status.NO_ANSWER, None)


@pytest.mark.parametrize(
    ("answer_format", "solving"),
    [
        ("tags", [True, False, True, False]),
        ("boxed", [False, True, False, True]),
        ("tags-or-boxed", [True, True, True, False]),
    ],
)
async def test_an_answer_counts_where_its_format_has_it(
    stock: WorkerStock, answer_format: AnswerFormat, solving: list[bool]
) -> None:
    recipe = Recipe(task="gcd", seed=2)
    async with AsyncReasoningGym(
        processes=1, start_worker=stock.lend, answer_format=answer_format
    ) as gym:
        oracle = (await gym.problem(recipe)).oracle
        tags, box = f"<answer>{oracle}</answer>", rf"\boxed{{{oracle}}}"
        replies = (tags, box, rf"{tags} or \boxed{{-1}}", f"<answer>-1</answer>{box}")
        scores = await gym.score_many([(recipe, reply) for reply in replies])
    assert [score.solved for score in scores] == solving


async def test_a_label_that_no_box_can_hold_is_faulty_in_boxes_alone(
    stock: WorkerStock,
) -> None:
    recipe = Recipe(task="codeio", seed=7144904887737672)  # an unbalanced text
    formats: dict[AnswerFormat, FaultKind] = {
        "tags": FaultKind.AMBIGUOUS,
        "boxed": FaultKind.UNANSWERABLE,
    }
    for answer_format, kind in formats.items():
        async with AsyncReasoningGym(
            processes=1, start_worker=stock.lend, answer_format=answer_format
        ) as gym:
            problem = await gym.problem(recipe)
        assert problem.fault is not None
        assert problem.fault.kind is kind


async def test_scores_are_in_the_order_of_the_completions(
    gym: AsyncReasoningGym,
) -> None:
    one, other = await gym.problems("gcd", count=2)
    pairs = [
        (one, right(one)),
        (other, "nothing"),
        (one, "nothing"),
        (other, right(other)),
    ]
    statuses = [score.status for score in await gym.score_many(pairs)]
    assert statuses == [
        Status.SOLVED,
        Status.NO_ANSWER,
        Status.NO_ANSWER,
        Status.SOLVED,
    ]


async def test_problems_of_one_recipe_and_different_entries_are_scored_by_their_own(
    gym: AsyncReasoningGym,
) -> None:
    one, other = await gym.problems("gcd", count=2)
    assert one.oracle != other.oracle
    edited = dataclasses.replace(other, recipe=one.recipe)
    pairs = [(one, right(one)), (edited, right(edited)), (one.recipe, right(one))]
    assert [s.status for s in await gym.score_many(pairs)] == [Status.SOLVED] * 3
    assert not (await gym.score_many([(one, right(one)), (edited, right(one))]))[
        1
    ].solved


async def longest_stall(scoring: Awaitable[Score]) -> float:
    """Score a completion; return the event loop's longest stall as a share of all work.

    Both are in seconds of this process's CPU, which other processes don't change.
    """
    stalls = [0.0]

    async def watch() -> None:
        while True:
            begin = time.process_time()
            await asyncio.sleep(0.01)
            stalls.append(time.process_time() - begin)

    watching, begin = asyncio.create_task(watch()), time.process_time()
    assert (await scoring).solved
    seconds = time.process_time() - begin
    watching.cancel()
    return max(stalls) / seconds


async def test_ten_megabytes_of_tags_do_not_stall_the_event_loop(
    gym: AsyncReasoningGym,
) -> None:
    [problem] = await gym.problems("gcd")
    tags = f"{'<think>' * 400_000}</think>{right(problem)}"
    for _ in range(3):
        if (share := await longest_stall(gym.score(problem, tags))) < 0.5:
            break
    assert share < 0.5
    scored = await gym.score(problem, f"{'<' * 3_000_000}</think>{right(problem)}")
    assert scored.solved


async def test_a_recipe_stands_for_its_problem(gym: AsyncReasoningGym) -> None:
    [problem] = await gym.problems("chain_sum", level=1)
    stored = problem.recipe.to_json()
    assert (await gym.problem(stored)).question == problem.question
    assert (await gym.score(stored, right(problem))).solved
    assert (await gym.score(problem.recipe, right(problem))).solved


async def test_a_recipe_of_another_version_is_said_once(stock: WorkerStock) -> None:
    async with AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym:
        [problem] = await gym.problems("gcd")
        installed = version("reasoning-gym")
        assert problem.recipe.library_version == installed
        stored = {**problem.recipe.to_json(), "library_version": "0.1.0"}
        sentence = f"made with reasoning-gym 0.1.0 are generated with {installed}: "
        with pytest.warns(UserWarning, match=sentence):
            again = await gym.problem(stored)
        assert again.recipe.library_version == installed
        await gym.problem({**stored, "seed": 4})  # would fail: warnings are errors


async def test_completions_of_a_failed_problem_are_unscored(
    gym: AsyncReasoningGym,
) -> None:
    code = {"symbols": ["__import__('os').system('true')"]}
    recipe = Recipe(task="simple_integration", seed=2, parameters=code)
    score = await gym.score(recipe, "<answer>x</answer>")
    assert (score.score, score.status) == (None, Status.UNSCORED)
    assert "symbols can't be" in score.detail


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"task": "gdc"}, "task: unknown task 'gdc'; did you mean gcd?"),
        ({"task": "gcd", "level": 99}, "level of gcd must be from 0 to "),
        (
            {"task": "gcd", "split": "test"},
            "split must be one of train, eval, got 'test'",
        ),
        (
            {"task": "gcd", "parameters": {"size_of_it": 1}},
            "unknown parameter 'size_of_it'; the task has min_numbers, max_numbers, min_value, ",
        ),
    ],
)
async def test_invalid_arguments_are_refused(
    gym: AsyncReasoningGym, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        await gym.problems(**arguments)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"complexity_mode": "hard"}, "complexity_mode must be one of random, "),
        ({"complexity_mode": "fixed"}, "difficulty must be a number from 0 to 1 with "),
        (
            {"difficulty": 0.5},
            "difficulty must be unset with complexity_mode unset, got 0.5",
        ),
        ({"sampling": "best"}, "sampling must be one of uniform, signal, got 'best'"),
        (
            {"curriculum_target_accuracy": 1},
            "curriculum_target_accuracy must be a number > 0 and <",
        ),
        (
            {"tasks": ["gdc"]},
            "include_tasks: unknown task or category 'gdc'; did you mean gcd?",
        ),
    ],
)
async def test_invalid_stream_options_are_refused(
    gym: AsyncReasoningGym, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        await gym.stream(**options)
    assert says in str(refused.value)


async def test_an_invalid_recipe_is_refused_and_nothing_is_scored(
    gym: AsyncReasoningGym,
) -> None:
    [problem] = await gym.problems("gcd")
    with pytest.raises(
        ConfigurationError, match=r"invalid recipe: seed must be .* got 'x'"
    ):
        await gym.score_many([(problem, "4"), ({"task": "gcd", "seed": "x"}, "4")])


async def test_a_stream_asks_problems_with_signal_again(gym: AsyncReasoningGym) -> None:
    stream = await gym.stream(["gcd"], sampling="signal", seed=3)
    problems = []
    for _ in range(WAIT + 50):
        problems.append(await stream.next())
        stream.observe(problems[-1], solved=4, attempts=8)
    again = [problem for problem in problems if problem.replayed]
    assert {problem.question for problem in again} < {
        one.question for one in problems[:50]
    }
    account = stream.sampling()
    assert account["sampling/asked_again"] == len(again) / len(problems) > 0
    assert account["sampling/rollouts_per_group_with_signal"] == 8
    stream.close()


async def test_a_stream_learns_from_the_scores_of_its_gym(
    gym: AsyncReasoningGym,
) -> None:
    options: dict[str, Any] = {
        "tasks": ["gcd"],
        "complexity_mode": "curriculum",
        "seed": 3,
    }
    told, fed, learned = (
        await gym.open_stream(StreamOptions(**options)),
        await gym.stream(**options, group_size=4),
        await gym.open_stream(StreamOptions(**options)),
    )
    for _ in range(20):
        problem, other, third = (
            await told.next(),
            await fed.next(),
            await learned.next(),
        )
        told.observe(problem, solved=4, attempts=4)
        learned.report_scores(
            third.recipe, scores := [await gym.score(third, right(third))] * 4
        )
        assert all(score.solved for score in scores)
        half = [(other.recipe, right(other))] * 2
        await asyncio.gather(gym.score_many(half), gym.score_many(half))
        fed.observe(other, solved=0, attempts=4)  # known already
    following = await told.next()
    assert following.recipe.level
    assert (await fed.next(), await learned.next()) == (following, following)
    for stream in (told, fed, learned):
        stream.close()


async def test_a_stream_follows_its_results_and_resumes(gym: AsyncReasoningGym) -> None:
    options: dict[str, Any] = {
        "tasks": ["gcd"],
        "complexity_mode": "curriculum",
        "seed": 3,
        "group_size": 8,
    }
    stream = await gym.stream(**options)
    for _ in range(80):  # the first 32 were drawn at the first level
        stream.observe(await stream.next(), solved=8, attempts=8)
    curriculum = stream.levels()["gcd"]
    assert curriculum.level > 0
    assert 0 < (curriculum.expected_signal or 0) < 0.5
    last = await stream.next()
    state = stream.state_dict([last])
    other = await gym.stream(**options)
    other.load_state_dict(state)
    assert other.levels() == stream.levels()
    following = [last] + [await stream.next() for _ in range(3)]
    assert [await other.next() for _ in range(4)] == following
    with pytest.raises(
        ValueError, match=r"solved must be from 0 to attempts \(8\), got 9"
    ):
        stream.observe(last, solved=9, attempts=8)
    stream.close()
    other.close()


async def test_reserved_questions_are_left_out(gym: AsyncReasoningGym) -> None:
    plain = await gym.stream(["gcd"])
    questions = [(await plain.next()).question for _ in range(4)]
    stream = await gym.stream(["gcd"], reserved=questions[:3])
    instead = [(await stream.next()).question for _ in range(4)]
    assert instead[3] == questions[3]
    assert set(instead).isdisjoint(questions[:3])
    plain.close()
    stream.close()


async def test_a_closed_gym_raises(stock: WorkerStock) -> None:
    gym = AsyncReasoningGym(processes=1, start_worker=stock.lend)
    await gym.close()
    with pytest.raises(PoolClosedError, match="this gym is closed; create a new one"):
        await gym.tasks()
    await gym.close()


async def test_it_is_ready_when_its_workers_run(stock: WorkerStock) -> None:
    async with AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym:
        assert not gym.ready
        await gym.start()
        assert gym.ready
    assert not gym.ready


async def test_concurrent_callers_start_the_workers_once(stock: WorkerStock) -> None:
    started: list[str] = []

    async def lend(role: str) -> Any:
        started.append(role)
        return await stock.lend(role)

    async with AsyncReasoningGym(processes=1, start_worker=lend) as gym:
        recipe = Recipe(task="gcd", seed=4)
        made = await asyncio.gather(*(gym.problem(recipe) for _ in range(5)))
    assert all(problem == made[0] for problem in made)
    assert len(started) == len(set(started)) > 0


async def test_solved_means_right_whatever_the_verifier_pays(
    gym: AsyncReasoningGym, stock: WorkerStock
) -> None:
    lenient = AsyncReasoningGym(
        processes=1, start_worker=stock.lend, solved_threshold=0.5
    )
    async with lenient as upstream:
        [problem] = await gym.problems("rectangle_count")
        near, decimal = f"{int(problem.oracle or 0) + 1}", f"{problem.oracle}.0"
        right, wrong, other_form = await gym.score_many(
            (problem, f"<answer>{text}</answer>")
            for text in (problem.oracle, near, decimal)
        )
        assert [score.solved for score in (right, wrong, other_form)] == [
            True,
            False,
            True,
        ]
        assert 0.5 <= (wrong.score or 0.0) < 1.0
        assert other_form.score == 1.0
        assert (await upstream.score(problem, f"<answer>{near}</answer>")).solved


async def test_a_right_number_in_another_form_is_paid_in_full(
    stock: WorkerStock, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncReasoningGym(
        processes=1, start_worker=stock.lend, answer_tolerance=True
    ) as gym:
        [problem] = await gym.problems("chain_sum")
        score = await gym.score(problem, f"<answer>{problem.oracle}.00</answer>")
        assert (score.score, score.solved) == (1.0, True)
        assert [m for m in caplog.messages if "answer_tolerance has no effect" in m]
        wrong = await gym.score(problem, f"<answer>{problem.oracle}.01</answer>")
        assert not wrong.solved


async def test_own_tasks_are_offered_like_the_librarys(stock: WorkerStock) -> None:
    module = Path(__file__).parents[1] / "support" / "programs" / "own_tasks.py"
    options: Any = {
        "processes": 1,
        "start_worker": stock.lend,
        "task_modules": [module],
    }
    async with AsyncReasoningGym(**options) as gym:
        [own] = [task for task in await gym.tasks() if task.name == "own_sums"]
        assert (own.category, own.levels) == ("own_tasks", 3)
        assert (await gym.modules()).keys() == {"own_tasks"}
        [problem] = await gym.problems("own_sums", level=1, seed=3)
        assert (await gym.score(problem, right(problem))).solved
        assert (await gym.score(problem.recipe.to_json(), right(problem))).solved
        with pytest.raises(
            UnknownTaskError, match="'own_tasks' is a category: name one"
        ):
            await gym.problems("own_tasks")
        with pytest.raises(
            ConfigurationError, match=r"unbuildable can't be .*no data here"
        ):
            await gym.problems("unbuildable")
        stream = await gym.stream(
            ["own_tasks"], complexity_mode="curriculum", group_size=1
        )
        drawn = await stream.next()
        assert (await gym.score(drawn, right(drawn))).solved
        assert stream.levels().keys() == {"own_sums"}
