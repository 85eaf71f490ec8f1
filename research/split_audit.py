"""Ask training's problems on eight paths, and count those that evaluation asks as well.

    python -m research.split_audit [--draws 2000] [--tasks gcd,coin_flip]

Evaluation's items come from `evaluate`, `problems --split eval`, `gym.problems(split="eval")` by
level and by parameters, for several seeds, and from all suites. Each path draws training's problems
at three difficulties: a level is asked by its number, its parameters or its difficulty. Commands
run as processes, against a policy, an API and a trainer of the demo. The last line draws without
the split, for comparison. The exit status is 1 if a question is on both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoTokenizer

from reasoning_gym_environment import AsyncReasoningGym, ReasoningGym
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer, build_tokenizer
from reasoning_gym_environment.demo.trainer import ApiServer, Trainer
from reasoning_gym_environment.evaluation.store import read_results
from reasoning_gym_environment.problems.identity import identity_of
from reasoning_gym_environment.problems.seeds import training_seed
from reasoning_gym_environment.problems.split import belongs_to_evaluation, is_published
from reasoning_gym_environment.problems.suites import NAMES, load_suite
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.service.client import RewardClient
from reasoning_gym_environment.storage.dumps import read_dump
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.tasks.facts import stored_snapshot
from reasoning_gym_environment.util.values import group_by

TASKS = (
    "caesar_cipher",
    "chain_sum",
    "coin_flip",
    "dice",
    "gcd",
    "lcm",
    "leg_counting",
    "prime_factorization",
    "products",
    "simple_equations",
)
"""Tasks with few enough questions that draws without the split would meet evaluation's."""

DIFFICULTIES = (0.0, 0.5, 1.0)

EVALUATED = 20
"""Evaluation items of each task at each level, for each seed."""

EVAL_SEEDS = (None, 0, 7)
"""Seeds of evaluation sets; None is `evaluate`'s own."""

PROCESSES = 2

OWN_TASKS = """
from reasoning_gym_environment import task


def own_task(number):
    def ask(random, level):
        first, second = (random.randrange(9 + 8 * level) for _ in range(2))
        text = f"Task {number}: what is {first} plus {second}?"
        return text, str(first + second), None

    ask.__name__ = f"own_{number}"
    return task(levels=3)(ask)


for number in range(10):
    own_task(number)
"""
"""A module of a user's own tasks, with 81, 289 and 625 questions at their levels."""

OWN_LEVELS = {
    f"own_{number}": [{"level": level} for level in range(3)] for number in range(10)
}

Ladders = Mapping[str, Sequence[Mapping[str, Any]]]
"""The parameters of the audited tasks' levels."""


class Asked(NamedTuple):
    """What was asked; the oracle identifies questions that disguise it."""

    task: str
    question: str
    oracle: str | None

    @classmethod
    def by(cls, source: Problem | StoredGroup) -> Asked:
        return cls(source.recipe.task, source.question, source.oracle)

    @property
    def identity(self) -> str:
        return identity_of(self.task, self.question, self.oracle)


class Evaluated:
    """All that evaluation asks."""

    def __init__(self) -> None:
        self.questions: defaultdict[str, set[str]] = defaultdict(set)
        self._identities: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, items: Iterable[Asked]) -> None:
        for asked in items:
            self.questions[asked.task].add(asked.question)
            self._identities[asked.task].add(asked.identity)

    def count(self, items: Iterable[Asked]) -> Counter[str]:
        """Count draws, and those that evaluation asks, or asks a copy of, or could ask."""
        counts: Counter[str] = Counter()
        for asked in items:
            counts["draws"] += 1
            counts["equal"] += asked.question in self.questions[asked.task]
            counts["copies"] += asked.identity in self._identities[asked.task]
            counts["evaluation's side"] += belongs_to_evaluation(asked.identity)
            counts["published"] += is_published(asked.identity)
        return counts


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What the paths draw from.

    Attributes:
        ladders: of the audited tasks of the library.
        draws: on each path.
        gym: has also the own tasks.
        url: of the policy server.
        tokenizer, folder: of the commands.
    """

    ladders: Ladders
    draws: int
    gym: AsyncReasoningGym
    url: str
    tokenizer: Path
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def levels(self, task: str) -> list[int]:
        """Return the levels of a task at DIFFICULTIES; between two levels, both."""
        top = len({**self.ladders, **OWN_LEVELS}[task]) - 1
        positions = [difficulty * top for difficulty in DIFFICULTIES]
        return sorted(
            {rounded(each) for each in positions for rounded in (math.floor, math.ceil)}
        )

    def tasks_by_levels(self) -> list[list[str]]:
        """Return the library's tasks, those of the same levels together."""
        groups = group_by(lambda task: tuple(self.levels(task)), self.ladders)
        return list(groups.values())

    def count_at(self, task: str, tasks: int) -> int:
        """Return how many problems of each level of a task make the draws of so many tasks."""
        return math.ceil(self.draws / tasks / len(self.levels(task)))

    @property
    def per_difficulty(self) -> int:
        return math.ceil(self.draws / len(DIFFICULTIES))

    async def run(self, *arguments: str) -> None:
        """Run a command of the package to its end."""
        command = await self.start(*arguments)
        if await command.wait():
            raise self.failure(arguments[0])

    async def start(
        self, *arguments: str, stderr: int | None = None
    ) -> asyncio.subprocess.Process:
        """Start a command of the package, whose log goes to a file unless `stderr` is another."""
        program = (sys.executable, "-m", "reasoning_gym_environment")
        with self._log.open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *program,
                *arguments,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr or log,
            )

    @property
    def _log(self) -> Path:
        return self.folder / "command.log"

    def failure(self, command: str) -> RuntimeError:
        log = self._log.read_text(encoding="utf-8", errors="replace")
        return RuntimeError(f"`{command}` ended: {log[-2000:]}")

    def options(self, folder: Path, **settings: Any) -> list[str]:
        """Return the options of a command that asks the policy, and writes to a folder."""
        env = {
            "tokenizer_name": self.tokenizer,
            "include_tasks": ",".join(self.ladders),
            "task_processes": PROCESSES,
            "group_size": 2,
            "steps_per_eval": 0,
            "use_wandb": False,
            "data_dumps_dir": folder,
            **settings,
        }
        server = {"base_url": f"{self.url}/v1", "model_name": "policy", "api_key": "x"}
        return [
            *(f"--env.{name}={value}" for name, value in env.items()),
            *(f"--openai.{name}={value}" for name, value in server.items()),
        ]


# What evaluation asks


async def evaluation_items(audit: Audit) -> AsyncIterator[list[Asked]]:
    """Yield evaluation's items as each way asks for them."""
    yield await of_evaluate(audit)
    for tasks in audit.tasks_by_levels():
        options = ("--split", "eval", "--count", str(EVALUATED))
        yield await of_problems(audit, tasks, *options)
    levels = [
        of_gym(audit, task, level, ladder[level])
        for task, ladder in {**audit.ladders, **OWN_LEVELS}.items()
        for level in audit.levels(task)
    ]
    for items in await asyncio.gather(*levels):
        yield items
    for name in NAMES:
        recipes = [recipe for recipe, _ in load_suite(name).recipes()]
        audited = [recipe for recipe in recipes if recipe.task in audit.ladders]
        problems = await asyncio.gather(*map(audit.gym.problem, audited))
        yield [Asked.by(problem) for problem in problems]


async def of_evaluate(audit: Audit) -> list[Asked]:
    folder = audit.folder / "evaluate"
    options = audit.options(
        folder,
        data_dir_to_save_evals=folder,
        num_eval_samples_per_task=EVALUATED,
        eval_difficulties=",".join(map(str, DIFFICULTIES)),
    )
    await audit.run("evaluate", *options)
    return [Asked.by(sample) for sample in read_results(folder).samples]


async def of_gym(
    audit: Audit, task: str, level: int, parameters: Mapping[str, Any]
) -> list[Asked]:
    """Ask for evaluation's items of a level by its number and by its parameters."""
    items: list[Asked] = []
    for seed in EVAL_SEEDS:
        for way in ({"level": level}, {"parameters": parameters}):
            problems = await audit.gym.problems(
                task, count=EVALUATED, seed=seed, split="eval", **way
            )
            if any(problem.also_trained_on for problem in problems):
                raise RuntimeError(f"{task} {level} is not split: it has few questions")
            items += map(Asked.by, problems)
    return items


# What training asks


async def of_problems(audit: Audit, tasks: Sequence[str], *options: str) -> list[Asked]:
    """Return what the command `problems` asks of tasks that have the same levels."""
    file = audit.folder / "problems.jsonl"
    levels = ",".join(map(str, audit.levels(tasks[0])))
    processes = f"--env.task_processes={PROCESSES}"
    choice = (*tasks, "--levels", levels)
    await audit.run("problems", *choice, *options, processes, "-o", str(file))
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    file.unlink()
    return [Asked(row["task"], row["question"], row["oracle"]) for row in rows]


async def command_problems(audit: Audit) -> AsyncIterator[Asked]:
    for tasks in audit.tasks_by_levels():
        count = audit.count_at(tasks[0], len(audit.ladders))
        options = ("--count", str(count), "--env.seed", "9")
        for asked in await of_problems(audit, tasks, *options):
            yield asked


async def gym_problems(audit: Audit) -> AsyncIterator[Asked]:
    """Ask for half by the number of a level, and for half by its parameters."""
    for task, ladder in audit.ladders.items():
        count = math.ceil(audit.count_at(task, len(audit.ladders)) / 2)
        for level in audit.levels(task):
            for way in ({"level": level}, {"parameters": ladder[level]}):
                for problem in await audit.gym.problems(
                    task, count=count, seed=3, **way
                ):
                    yield Asked.by(problem)


async def gym_stream(audit: Audit) -> AsyncIterator[Asked]:
    for difficulty in DIFFICULTIES:
        stream = await audit.gym.stream(
            list(audit.ladders), complexity_mode="fixed", difficulty=difficulty, seed=1
        )
        for _ in range(audit.per_difficulty):
            yield Asked.by(await stream.next())
        stream.close()


async def http_stream(audit: Audit) -> AsyncIterator[Asked]:
    """Take streams of the command `rewards`, and each question's oracle from its recipe."""
    service = await audit.start(
        *("rewards", "--port", "0", "--processes", str(PROCESSES)),
        *("--streams", str(audit.folder / "streams")),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert service.stderr is not None
        client = RewardClient(await address(service.stderr))
        for difficulty in DIFFICULTIES:
            options = {
                "tasks": list(audit.ladders),
                "complexity_mode": "fixed",
                "difficulty": difficulty,
                "seed": 2,
            }
            left = audit.per_difficulty
            while left:
                count = min(left, 64)
                rows = await asyncio.to_thread(
                    client.problems, f"at-{difficulty}", count, options
                )
                left -= count
                for row in rows:
                    problem = await audit.gym.problem(row["recipe"])
                    yield Asked(problem.recipe.task, row["question"], problem.oracle)
    finally:
        service.terminate()
        await service.wait()


async def address(log: asyncio.StreamReader) -> str:
    """Return the address at which a service says that it listens."""
    async for line in log:
        if listening := re.search(rb"http://[\w.:]+", line):
            return listening[0].decode()
    raise RuntimeError("the service ended")


async def adapter(audit: Audit) -> AsyncIterator[Asked]:
    """Take the rows of TRL's data set, whose gym is blocking."""
    from reasoning_gym_environment.integrations.trl import stream_dataset

    def rows() -> Iterator[dict[str, Any]]:
        with ReasoningGym(processes=PROCESSES) as gym:
            for difficulty in DIFFICULTIES:
                stream = gym.stream(
                    list(audit.ladders),
                    complexity_mode="fixed",
                    difficulty=difficulty,
                    seed=4,
                )
                yield from islice(stream_dataset(stream), audit.per_difficulty)

    for row in await asyncio.to_thread(lambda: [*rows()]):
        yield Asked(row["task"], row["question"], row["oracle"])


async def serve(audit: Audit) -> AsyncIterator[Asked]:
    for difficulty in DIFFICULTIES:
        folder = audit.folder / f"serve-{difficulty}"
        async with ApiServer() as api:
            trainer = Trainer.for_groups(api.url, group_size=2, checkpoint_dir=folder)
            training = asyncio.create_task(trainer.run())
            options = training_options(audit, folder, difficulty)
            command = await audit.start(
                "serve", f"--env.rollout_server_url={api.url}", *options
            )
            try:
                while len(groups := groups_in(folder)) < audit.per_difficulty:
                    if training.done() or command.returncode is not None:
                        raise audit.failure("serve")
                    await asyncio.sleep(1)
            finally:
                command.terminate()
                await command.wait()
                training.cancel()
        for group in groups:
            yield Asked.by(group)


async def process(audit: Audit) -> AsyncIterator[Asked]:
    for difficulty in DIFFICULTIES:
        folder = audit.folder / f"process-{difficulty}"
        options = training_options(audit, folder, difficulty)
        await audit.run(
            "process", f"--env.total_steps={audit.per_difficulty}", *options
        )
        for group in groups_in(folder):
            yield Asked.by(group)


def training_options(audit: Audit, folder: Path, difficulty: float) -> list[str]:
    folder.mkdir()
    return audit.options(
        folder,
        complexity_mode="fixed",
        difficulty=difficulty,
        dump_all_rollouts=True,
        ensure_scores_are_not_same=False,
    )


def groups_in(folder: Path) -> list[StoredGroup]:
    return [
        StoredGroup.from_json(row)
        for dump in folder.glob("*.jsonl")
        for row in read_dump(dump).rows
    ]


async def own_tasks(audit: Audit) -> AsyncIterator[Asked]:
    """Ask for half by level, and for half in streams."""
    for task in OWN_LEVELS:
        count = math.ceil(audit.count_at(task, len(OWN_LEVELS)) / 2)
        for level in audit.levels(task):
            for problem in await audit.gym.problems(
                task, level=level, count=count, seed=5
            ):
                yield Asked.by(problem)
    for difficulty in DIFFICULTIES:
        stream = await audit.gym.stream(
            list(OWN_LEVELS), complexity_mode="fixed", difficulty=difficulty, seed=6
        )
        for _ in range(math.ceil(audit.per_difficulty / 2)):
            yield Asked.by(await stream.next())
        stream.close()


async def without_split(audit: Audit) -> AsyncIterator[Asked]:
    """Make the problems of training's recipes as they are, which no path does."""
    for task, ladder in audit.ladders.items():
        for level in audit.levels(task):
            for index in range(audit.count_at(task, len(audit.ladders))):
                seed = training_seed(3, "", task, index)
                recipe = Recipe(
                    task=task, seed=seed, level=level, parameters=ladder[level]
                )
                yield Asked.by(await audit.gym.problem(recipe))


PATHS: Mapping[str, Callable[[Audit], AsyncIterator[Asked]]] = {
    "`serve`": serve,
    "`process`": process,
    "`problems`": command_problems,
    "`gym.problems`": gym_problems,
    "`gym.stream`": gym_stream,
    "HTTP streams of `rewards`": http_stream,
    "TRL's data set": adapter,
    "own tasks": own_tasks,
}

WITHOUT_SPLIT = "without the split"

COLUMNS = ("draws", "equal", "copies", "evaluation's side", "published")


async def audit_all(audit: Audit) -> bool:
    """Print a line for each path; return whether no path asks a question of evaluation."""
    evaluated = Evaluated()
    async for items in evaluation_items(audit):
        evaluated.add(items)
    counts = sorted((task, len(asked)) for task, asked in evaluated.questions.items())
    print(
        "Evaluation's questions:",
        ", ".join(f"{task} {count}" for task, count in counts),
    )
    print(
        f"\n| path | {' | '.join(COLUMNS)} |\n| --- |{' --- |' * len(COLUMNS)}",
        flush=True,
    )
    is_clean = True
    for name, path in {**PATHS, WITHOUT_SPLIT: without_split}.items():
        found = evaluated.count([asked async for asked in path(audit)])
        print(
            f"| {name} |",
            " | ".join(str(found[column]) for column in COLUMNS),
            "|",
            flush=True,
        )
        if name != WITHOUT_SPLIT and (
            found.total() > found["draws"] or not found["draws"]
        ):
            is_clean = False
    return is_clean


@asynccontextmanager
async def prepared(tasks: Sequence[str], draws: int) -> AsyncIterator[Audit]:
    """Start what the paths need."""
    ladders = stored_snapshot()["ladders"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module = folder / "audited_tasks.py"
        module.write_text(OWN_TASKS, encoding="utf-8")
        tokenizer = build_tokenizer(folder / "tokenizer")
        policy = ScriptedPolicy(["<answer>1</answer>", "<answer>2</answer>"])
        async with (
            PolicyServer(policy, AutoTokenizer.from_pretrained(tokenizer)) as server,
            AsyncReasoningGym(processes=PROCESSES, task_modules=[str(module)]) as gym,
        ):
            yield Audit(
                ladders={task: ladders[task]["levels"] for task in tasks},
                draws=draws,
                gym=gym,
                url=server.url,
                tokenizer=tokenizer,
                folder=folder / "runs",
            )


async def main(tasks: Sequence[str], draws: int) -> bool:
    async with prepared(tasks, draws) as audit:
        return await audit_all(audit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000, help="on each path")
    parser.add_argument("--tasks", default=",".join(TASKS), help="of the library")
    options = parser.parse_args()
    sys.exit(not asyncio.run(main(options.tasks.split(","), options.draws)))
