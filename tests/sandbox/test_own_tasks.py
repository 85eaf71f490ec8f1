"""Tasks of a user's module: made and scored beside the library's, and apart from them."""

import os
import pickle
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filter_attempts import where_filtered
from process_tree import PROC, descendants, in_linux
from stored_values import as_stored, said
from worker_stock import WorkerStock

from reasoning_gym_environment.errors import (
    ConfigurationError,
    GenerationError,
    WorkerStartError,
)
from reasoning_gym_environment.problems.options import TaskOptions
from reasoning_gym_environment.problems.selection import select
from reasoning_gym_environment.records import Recipe, Status
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.sandbox.worker_groups import StartWorker
from reasoning_gym_environment.scoring.grading import ScoringSettings, grade
from reasoning_gym_environment.storage.rescoring import describe_rescoring, rescore
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.tasks.catalogue import proven_tasks
from reasoning_gym_environment.tasks.modules import find_modules

pytestmark = pytest.mark.processes

MODULE = Path(__file__).parents[1] / "support" / "programs" / "own_tasks.py"
SETTINGS = PoolSettings(
    processes=1,
    verify_timeout=1.0,
    modules=find_modules([str(MODULE)]),
    task_environment=["OWN_TASKS", "UNSET"],
)


@pytest.fixture(scope="module")
async def own(stock: WorkerStock) -> AsyncIterator[TaskPool]:
    os.environ |= {"OWN_TASKS": "named", "OTHER": "not named"}
    async with TaskPool(SETTINGS, Counter(), start_worker=stock.lend) as pool:
        del os.environ["OWN_TASKS"], os.environ["OTHER"]
        yield pool


async def test_they_are_discovered_with_categories_levels_and_failures(
    own: TaskPool,
) -> None:
    found, ladders = await own.discover(proven=proven_tasks()), await own.ladders()
    assert {name: found.categories[name] for name in ("own_sums", "odd", "gcd")} == {
        "own_sums": "own_tasks",
        "odd": "strange",
        "gcd": "arithmetic",
    }
    [(task, why)] = found.failures.items()
    assert (task, why[:40]) == (
        "unbuildable",
        "can't be built: RuntimeError: no data he",
    )
    assert re.search(r"\(.*own_tasks\.py, line \d+\)$", why)
    assert ladders["own_sums"].levels == ({"digits": 1}, {"digits": 2}, {"digits": 4})
    assert ladders["own_sums"].parameters == ("digits", "sign")
    assert ladders["odd"].levels == ({},)
    options = TaskOptions(complexity_mode="curriculum", task_weights={"strange": 2})
    chosen = await select(
        own, options, tasks=["own_tasks", "strange", "gcd"], with_ladders=False
    )
    assert chosen.weights == {"gcd": 1.0, "odd": 2.0, "own_sums": 1.0}
    for task, parameters, message in (
        (
            "barren",
            {},
            r"barren: it makes no item: .*no item here \(.*own_tasks\.py, line \d+\);",
        ),
        (
            "odd",
            {"kind": "number"},
            r"task_parameters: no item of odd with .*answer must be a",
        ),
        (
            "odd",
            {"kid": "number"},
            r"task_parameters: odd has no parameter 'kid'; did you mean k",
        ),
    ):
        options = TaskOptions(task_parameters={task: parameters} if parameters else {})
        with pytest.raises(ConfigurationError, match=message):
            await select(own, options, tasks=[task], with_ladders=False)
    [(name, module)] = own.modules.items()
    assert (name, module.threads, module.devices) == ("own_tasks", 2, False)
    assert own.versions == {"own_tasks": module.digest}
    assert own.module_of("odd") == "own_tasks"
    assert own.module_of("gcd") is None


async def test_a_recipe_gives_the_same_problem_though_it_draws_from_global_state(
    own: TaskPool,
) -> None:
    recipes = [Recipe(task="own_sums", seed=2**52 + seed) for seed in (2, 4, 2, 4)]
    problems = [await own.generate(recipe) for recipe in recipes]
    assert problems[:2] == problems[2:]
    assert problems[0].question != problems[1].question
    assert "named" in problems[0].question
    assert "not named" not in problems[0].question
    assert problems[0].recipe.library_version is not None
    assert problems[0].source == "own_tasks"
    assert (await own.generate(Recipe(task="gcd", seed=2))).source == ""
    hard = await own.generate(replace(recipes[0], level=2, parameters={"digits": 4}))
    assert int(str(hard.oracle)) > 200
    assert b"own_tasks" in problems[0].entry
    assert "own_tasks" not in sys.modules


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            Recipe(task="own_sums", seed=1, parameters={"digits": "4"}),
            "its type is int",
        ),
        (
            Recipe(task="own_sums", seed=1, parameters={"digits": 10**6}),
            "the limit is 400",
        ),
        (
            Recipe(task="own_sums", seed=1, parameters={"sign": "-"}),
            r"its texts are \['\+', 'plus",
        ),
        (
            Recipe(task="own_sums", seed=1, parameters={"size": 2}),
            "unknown parameter 'size'",
        ),
        (
            Recipe(task="own_sums", seed=1, level=2),
            "level 2 of own_sums lacks its parameters",
        ),
        (
            Recipe(task="odd", seed=1, parameters={"kind": "number"}),
            "answer must be .*got 4",
        ),
        (
            Recipe(task="odd", seed=1, parameters={"kind": "empty"}),
            "question must be .*got ' '",
        ),
        (
            Recipe(task="unbuildable", seed=1),
            r"no data here \(.*own_tasks\.py, line \d+\)",
        ),
        (
            Recipe(task="own_sum", seed=1),
            "unknown task 'own_sum'.* its module in task_modules",
        ),
    ],
)
async def test_what_a_recipe_may_not_ask_is_said(
    own: TaskPool, recipe: Recipe, message: str
) -> None:
    with pytest.raises(GenerationError, match=message):
        await own.generate(recipe)


@where_filtered
async def test_whatever_a_verifier_does_is_a_verdict_and_leaves_the_next_answers_as_they_were(
    own: TaskPool, caplog: pytest.LogCaptureFixture
) -> None:
    problem = await own.generate(
        Recipe(task="odd", seed=2, parameters={"kind": "none"})
    )
    assert problem.oracle is None
    expected = {
        "first": (Status.WRONG, 0.25, ""),
        "second": (Status.WRONG, 0.25, ""),
        "raises": (Status.VERIFIER_ERROR, 0.0, r"raised ValueError: no \x1b[31mnumber"),
        "loops": (Status.TIMEOUT, 0.0, "the verifier did not finish in time"),
        "exits": (Status.CRASHED, 0.0, "the verifier's process died"),
        "crashes": (Status.CRASHED, 0.0, "the verifier's process died"),
        "allocates": (Status.OUT_OF_MEMORY, 0.0, "the verifier ran out of memory"),
        "imports": (Status.SOLVED, 1.0, ""),
        "two": (Status.SOLVED, 1.0, ""),
        "third": (Status.WRONG, 0.25, ""),
    }
    refused = ("writes", "connects", "forks")
    numberless = ("nan", "infinite", "text")
    verdicts = await own.verify(problem, [*expected, *refused, *numberless])
    found = {
        answer: (verdict.status, verdict.score, verdict.detail)
        for answer, verdict in zip(expected, verdicts, strict=False)
    }
    assert found == expected
    for answer, verdict in zip(refused, verdicts[len(expected) :], strict=False):
        assert verdict.status is Status.VERIFIER_ERROR, answer
        assert "Operation not permitted" in verdict.detail
    for answer, verdict in zip(numberless, verdicts[-3:], strict=True):
        assert (verdict.status, verdict.score) == (Status.VERIFIER_ERROR, 0.0), answer
        assert "a score must be a number, got" in verdict.detail
    assert (
        r"odd: verifier raised ValueError: no \x1b[31mnumber (error 1)"
        in caplog.messages
    )
    assert not Path("/tmp/own-tasks-wrote").exists()


async def test_an_answer_with_a_word_of_denial_is_its_own_verifiers_to_judge(
    own: TaskPool,
) -> None:
    problem = await own.generate(Recipe(task="odd", seed=2))
    [verdict] = await own.verify(problem, ["a != 12"])
    assert verdict.score == 0.25


async def test_a_task_that_can_be_built_in_its_generator_alone_says_where_it_fails(
    own: TaskPool,
) -> None:
    problem = await own.generate(Recipe(task="odd", seed=2))
    recipe = replace(problem.recipe, task="unbuildable")
    [verdict] = await own.verify(replace(problem, recipe=recipe), ["1"])
    assert verdict.status is Status.VERIFIER_ERROR
    assert re.search(
        "unbuildable can't be built .*no data here .*own_tasks.py", verdict.detail
    )


async def test_a_module_that_patches_the_library_changes_none_of_its_scores(
    own: TaskPool,
) -> None:
    problem = await own.generate(Recipe(task="gcd", seed=2))
    wrong, right = await own.verify(problem, ["0", str(problem.oracle)])
    assert (wrong.status, right.status) == (Status.WRONG, Status.SOLVED)
    sums = await own.generate(Recipe(task="own_sums", seed=2))
    [right] = await own.verify(sums, [str(sums.oracle)])
    assert (right.status, right.tagged_score) == (Status.SOLVED, None)


async def test_a_task_proved_to_keep_no_state_shares_a_process(
    stock: WorkerStock,
) -> None:
    settings = replace(SETTINGS, stateless=frozenset({"odd"}))
    async with TaskPool(settings, Counter(), start_worker=stock.lend) as pool:
        problem = await pool.generate(Recipe(task="odd", seed=2))
        answers = ["first", "second", "exits", "imports", "third", "fourth"]
        scores = [verdict.score for verdict in await pool.verify(problem, answers)]
        assert scores == [0.25, 1.0, 0.0, 1.0, 0.25, 1.0]


async def test_rescore_counts_the_rows_that_another_module_made(own: TaskPool) -> None:
    settings = ScoringSettings(max_token_length=100)
    problem = await own.generate(Recipe(task="own_sums", seed=2))
    group = await grade(problem, [said("<answer>1</answer>", tokens=4)], own, settings)
    rows = [
        as_stored(group, library_versions={"own_tasks": d})
        for d in ("sha256:0", "sha256:1")
    ]
    rows.append(as_stored(group, library_versions=own.versions))
    results = await rescore(
        [StoredGroup.from_json(r) for r in rows], own, settings, concurrency=1
    )
    lines = [*describe_rescoring(results, settings, torn=0)]
    now = own.versions["own_tasks"]
    assert f"  1  were generated with own_tasks sha256:1, scored with {now}" in lines
    assert sum("were generated with" in line for line in lines) == 2
    assert {r.after.library_versions["own_tasks"] for r in results} == {now}


class Scripted:
    """A worker that replies with the same bytes to whatever is asked."""

    pid, missing_protections, growth = 1, "", 0

    def __init__(self, reply: bytes) -> None:
        self._reply = reply

    async def request(self, payload: bytes, *, timeout: float) -> bytes:
        return self._reply

    async def kill(self) -> None:
        pass


class Explodes:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os._exit, (3,)


def always(reply: bytes) -> StartWorker:
    async def start(role: str) -> Any:
        return Scripted(reply)

    return start


@pytest.mark.parametrize(
    "reply",
    [
        *(pickle.dumps(Explodes()), b"\x02\0\0\0{}", b"\xff\xff\0\0{}", b"\0"),
        *(b'\x0b\0\0\0{"message":3}', random.Random(1).randbytes(1000)),
    ],
)
async def test_a_reply_of_another_form_is_refused_and_never_unpickled(
    reply: bytes,
) -> None:
    settings = PoolSettings(processes=1)
    async with TaskPool(settings, Counter(), start_worker=always(reply)) as pool:
        with pytest.raises(GenerationError):
            await pool.generate(Recipe(task="gcd", seed=2))
        with pytest.raises(GenerationError):
            await pool.ladders()


REGISTERS = (
    "from reasoning_gym.arithmetic.gcd import GCDConfig, GCDDataset\n"
    "from reasoning_gym.factory import DATASETS, register_dataset\n"
)


def registering(name: str, **attributes: str) -> str:
    """Return a module's source."""
    dataset = f"type('D', (GCDDataset,), {attributes})"
    return f"{REGISTERS}register_dataset({name!r}, {dataset}, GCDConfig)\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import nothing_like_this",
            r"ModuleNotFoundError: No module .*\(.*/first\.py, line 1\)",
        ),
        ("raise SystemExit(3)", "first.py: SystemExit: 3"),
        (
            "import reasoning_gym_environment as r\nr.ReasoningGym().problems('gcd')",
            "a module that workers import can't start a gym: put",
        ),
        (
            "x = 1",
            r"first.py registers no task: put @task\(levels=8\) before a function of its own",
        ),
        (
            registering("gcd"),
            "task gcd of .*first.py has the name of one of reasoning_gym.arithmetic.gcd: rename it",
        ),
        (
            registering("one", __module__="first") * 2,
            "task one of .*first.py has the name of one of first: rename it",
        ),
        (f"{REGISTERS}DATASETS['lcm'] = DATASETS['gcd']", "task lcm of .*first.py has"),
        (registering("a b"), "at most 100 .*'a b'"),
        (registering(".."), r"at most 100 .*'\.\.'"),
    ],
)
async def test_a_module_that_cannot_be_used_stops_the_start(
    tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / "first.py").write_text(source)
    settings = PoolSettings(
        processes=1, modules=find_modules([str(tmp_path / "first.py")])
    )
    with pytest.raises(WorkerStartError, match=message):
        await TaskPool(settings, Counter(), start_worker=always(b"")).start()


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            [registering("first") + registering("other")],
            "task first of .*has the name of a category of .*first",
        ),
        (
            [registering("other", category="lcm")],
            "category lcm of .*first.py has the name of a task: rename it",
        ),
        (
            [registering("twice")] * 2,
            r"task twice of .*second\.py .*a task or module of .*first",
        ),
    ],
)
async def test_a_name_that_stands_for_two_things_is_refused(
    tmp_path: Path, sources: list[str], message: str
) -> None:
    paths = [tmp_path / name for name in ("first.py", "second.py")[: len(sources)]]
    for path, source in zip(paths, sources, strict=True):
        path.write_text(source)
    settings = PoolSettings(
        processes=1, modules=find_modules([str(path) for path in paths])
    )
    with pytest.raises(ConfigurationError, match=message):
        await TaskPool(settings, Counter(), start_worker=always(b"")).start()


@in_linux
async def test_a_module_that_changes_while_its_workers_restart_makes_no_more_problems(
    stock: WorkerStock, tmp_path: Path
) -> None:
    """The digest also covers what the package has in other folders."""
    package = tmp_path / "proj"
    (package / "sub").mkdir(parents=True)
    for path, text in {
        "__init__.py": "",
        "util.py": "ANSWER = '1'",
        "sub/__init__.py": "",
        "sub/mine.py": "from reasoning_gym_environment import task\nfrom proj.util import ANSWER\n"
        "@task(levels=1)\ndef mine(random, level):\n"
        "    return f'What is it? {random.random()}', ANSWER, {}\n",
    }.items():
        (package / path).write_text(text)
    settings = PoolSettings(
        processes=1, modules=find_modules([str(package / "sub" / "mine.py")])
    )
    async with TaskPool(settings, Counter(), start_worker=stock.lend) as pool:
        assert (await pool.generate(Recipe(task="mine", seed=2))).oracle == "1"
        (package / "util.py").write_text("ANSWER = '2'")
        for pid in descendants(os.getpid()):
            if b"proj.sub.mine" in (PROC / str(pid) / "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(
            GenerationError, match=r"mine\.py has changed since the start: start"
        ):
            await pool.generate(Recipe(task="mine", seed=4))
