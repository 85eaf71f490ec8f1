"""`problems`: problems of chosen tasks and levels as data, with or without solutions."""

from __future__ import annotations

import asyncio
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..errors import ConfigurationError, FixableError
from ..inference.prompts import build_messages, resolve_system_prompt
from ..integrations.nemo_gym import nemo_gym_row
from ..integrations.shared import demonstration_row, problem_row
from ..problems.stream import (
    make_problems,
    question_hash,
    select,
    set_recipes,
    skip_faulty,
)
from ..records import Ladder, Problem, Recipe
from ..sandbox.pool import Generate, TaskPool, generate_with_retry
from ..settings import (
    EnvironmentSettings,
    add_settings,
    pool_settings,
    read_environment,
)
from ..storage.export import (
    require_replaceable,
    skyrl_row,
    targets,
    verl_row,
    write_splits,
)
from ..util.command_line import Parser, number
from ..util.progress import Progress, with_progress
from .export import add_output_options, require_jsonl_for_nemo_gym

SETTINGS = (
    "include_tasks",
    "exclude_tasks",
    "task_parameters",
    "seed",
    "system_prompt",
    "eval_seed",
    "eval_difficulties",
    "num_eval_samples_per_task",
    "skip_faulty_items",
    "solved_threshold",
    "generation_timeout",
    "task_processes",
)
"""The settings of `serve` that apply here."""


class Made(NamedTuple):
    """The rows, and what was skipped.

    Attributes:
        tasks: number of tasks with rows.
        refused: replaced questions that are in the evaluation set.
        faulty: replaced items whose label is false, or whose question has no one answer.
        without_oracle: tasks without a single right answer.
        unsolved: demonstrations that the task's own verifier rejects.
    """

    rows: list[dict[str, Any]]
    tasks: int
    refused: int
    faulty: int
    without_oracle: list[str]
    unsolved: int


def main(arguments: Sequence[str]) -> int:
    """Write the rows and print their counts."""
    options = build_parser().parse(arguments)
    if options.demonstrations and options.format != "prompts":
        raise ConfigurationError("--demonstrations needs --format prompts")
    require_jsonl_for_nemo_gym(options)
    path = targets(options.output, ["train"])["train"]
    require_replaceable(path, force=options.force)
    made = asyncio.run(make(options, read_environment(options)))
    if not made.rows:
        raise FixableError(f"no problems to write: {'; '.join(skipped(made))}")
    write_splits(options.output, {"train": made.rows})
    what = "demonstrations" if options.demonstrations else "problems"
    print(f"{len(made.rows)} {what} of {made.tasks} tasks in {path}", *skipped(made), sep="\n")
    return 0


def skipped(made: Made) -> list[str]:
    """Return a line for each reason to skip or replace problems."""
    lines = []
    if made.without_oracle:
        lines.append(f"skipped tasks without a single oracle: {', '.join(made.without_oracle)}")
    if made.unsolved:
        lines.append(f"skipped {made.unsolved} that their own verifier rejects")
    if made.refused:
        lines.append(f"replaced {made.refused} whose questions are in the evaluation set")
    if made.faulty:
        lines.append(f"replaced {made.faulty} faulty items")
    return lines


def build_parser() -> Parser:
    parser = Parser(
        "problems",
        "Write problems of chosen tasks and levels, without the questions of the "
        "configured evaluation set. No server is used.",
    )
    add_output_options(parser)
    parser.option(
        "--count", "problems of each task and level", type=number(int, ge=1), required=True
    )
    parser.option(
        "--levels",
        "levels of each task, 0 is the easiest (default: the library's configuration)",
        type=read_levels,
        metavar="N,N",
    )
    parser.option(
        "--split",
        "train uses env.seed; eval uses env.eval_seed and seeds that are never trained on",
        choices=("train", "eval"),
        default="train",
    )
    parser.flag(
        "--demonstrations",
        "add the oracle as the assistant's answer, in the format of export --format sft",
    )
    parser.option(
        "--format",
        "prompts: messages and recipe, as TRL reads them; nemo-gym, verl, skyrl: the rows of "
        "NeMo Gym, verl or SkyRL",
        choices=("prompts", "nemo-gym", "verl", "skyrl"),
        default="prompts",
    )
    add_settings(parser, SETTINGS)
    return parser


def read_levels(text: str) -> list[int]:
    if not all(part.isascii() and part.isdigit() for part in text.split(",")):
        raise ArgumentTypeError(f"must be a list of levels such as 0,1, got {text!r}")
    return list(dict.fromkeys(map(int, text.split(","))))


async def make(options: Namespace, config: EnvironmentSettings) -> Made:
    """Generate the problems and their rows, ordered by task, level and seed."""
    trains = options.split == "train"
    levels: Sequence[int | None] = options.levels or [None]
    run_seed = config.seed if trains else config.eval_seed
    async with TaskPool(pool_settings(config), Counter()) as pool:
        selection = await select(pool, config, tasks=config.include_tasks, with_ladders=True)
        ladders = {task: selection.ladders[task] for task in sorted(selection.categories)}
        require_levels(levels, ladders)
        reserved = await evaluated_questions(pool, config, ladders) if trains else frozenset()
        own = config.task_parameters if trains else {}
        series = [
            set_recipes(options.split, run_seed, task, level, {**parameters, **own.get(task, {})})
            for task, ladder in ladders.items()
            for level in levels
            for parameters in [{} if level is None else ladder[level]]
        ]
        counts: Counter[str] = Counter()
        generate = skip_faulty(pool.generate, counts, skip=config.skip_faulty_items)
        problems = await make_all(generate, series, options.count, reserved, counts)
        refused = counts["refused"]
        faulty = counts["sampling/faulty_items_redrawn"]
        if not options.demonstrations:
            rows = [row_of(problem, config.system_prompt, options.format) for problem in problems]
            return Made(rows, len({p.recipe.task for p in problems}), refused, faulty, [], 0)
        known = [problem for problem in problems if problem.oracle is not None]
        jobs = [demonstration_row(problem, config.system_prompt, pool) for problem in known]
        rows = [row for row in await with_progress(jobs, "demonstrations") if row is not None]
    without = {problem.recipe.task for problem in problems if problem.oracle is None}
    tasks = len({row["task"] for row in rows})
    return Made(rows, tasks, refused, faulty, sorted(without), len(known) - len(rows))


def row_of(problem: Problem, system_prompt: str, layout: str) -> dict[str, Any]:
    """Return a problem's row in a format, with the messages that the environment sends."""
    if layout == "prompts":
        return problem_row(problem, system_prompt)
    messages = build_messages(resolve_system_prompt(system_prompt), problem.question)
    if layout == "nemo-gym":
        return nemo_gym_row(problem, messages)
    return (verl_row if layout == "verl" else skyrl_row)(problem.recipe, messages)


async def evaluated_questions(
    pool: TaskPool, config: EnvironmentSettings, ladders: Mapping[str, Ladder]
) -> frozenset[bytes]:
    """Return the hashes of the configured evaluation set's questions."""
    from ..evaluation.run import EvaluationSet, planned_recipes  # slow, not for help

    planned = planned_recipes(
        seed=config.eval_seed,
        tasks=list(ladders),
        per_task=config.num_eval_samples_per_task,
        difficulties=config.eval_difficulties,
        ladders=ladders,
    )
    source = skip_faulty(pool.generate, Counter(), skip=config.skip_faulty_items)
    items = await EvaluationSet(source, planned).items()
    return frozenset(question_hash(item.problem.question) for item in items)


def require_levels(chosen: Sequence[int | None], ladders: Mapping[str, Ladder]) -> None:
    """Raise ConfigurationError naming all tasks that lack the highest level."""
    highest = max(level or 0 for level in chosen)
    tops = {task: len(ladder) - 1 for task, ladder in ladders.items()}
    lacking = [f"{task} (0 to {top})" for task, top in tops.items() if top < highest]
    if lacking:
        raise ConfigurationError(
            f"--levels: level {highest} does not exist for {', '.join(lacking)}; choose lower "
            "levels or exclude tasks with --env.exclude_tasks"
        )


async def make_all(
    generate: Generate,
    series: Sequence[Iterator[Recipe]],
    count: int,
    reserved: Collection[bytes],
    counts: Counter[str],
) -> list[Problem]:
    """Generate `count` problems of each series; count the "refused" questions."""
    progress = Progress("problems", total=len(series) * count)
    async with progress.shown():
        made = await asyncio.gather(
            *(
                make_problems(
                    partial(generate_with_retry, generate),
                    each,
                    count,
                    excluded=reserved,
                    on_excluded=lambda: counts.update(["refused"]),
                    on_made=progress.advance,
                )
                for each in series
            )
        )
    return [problem for problems in made for problem in problems]
