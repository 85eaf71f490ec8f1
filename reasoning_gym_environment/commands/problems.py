"""`problems`: problems of chosen tasks and levels as data, with or without solutions."""

from __future__ import annotations

import asyncio
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import ConfigurationError, FixableError
from ..inference.prompts import build_messages, resolve_system_prompt
from ..integrations.nemo_gym import nemo_gym_row
from ..integrations.shared import demonstration_row, problem_row
from ..problems.stream import make_problems, question_hash, select, set_recipes, skip_faulty
from ..records import Ladder, Problem
from ..sandbox.pool import TaskPool, generate_with_retry
from ..settings import EnvironmentSettings, add_settings, pool_settings, read_environment
from ..storage.export import require_replaceable, skyrl_row, targets, verl_row, write_splits
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


def main(arguments: Sequence[str]) -> int:
    """Write the rows and print their counts."""
    options = build_parser().parse(arguments)
    if options.demonstrations and options.format != "prompts":
        raise ConfigurationError("--demonstrations needs --format prompts")
    require_jsonl_for_nemo_gym(options)
    path = targets(options.output, ["train"])["train"]
    require_replaceable(path, force=options.force)
    rows, tasks, skipped = asyncio.run(make(options, read_environment(options)))
    if not rows:
        raise FixableError(f"no problems to write: {'; '.join(skipped)}")
    write_splits(options.output, {"train": rows})
    what = "demonstrations" if options.demonstrations else "problems"
    print(f"{len(rows)} {what} of {tasks} tasks in {path}", *skipped, sep="\n")
    return 0


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


async def make(
    options: Namespace, config: EnvironmentSettings
) -> tuple[list[dict[str, Any]], int, list[str]]:
    """Generate the problems and their rows, ordered by task, level and seed.

    Returns:
        The rows, the number of tasks that have any, and a line for each reason to skip or replace
        problems.
    """
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
        progress = Progress("problems", total=len(series) * options.count)
        async with progress.shown():
            jobs = (
                make_problems(
                    partial(generate_with_retry, generate),
                    each,
                    options.count,
                    excluded=reserved,
                    on_excluded=lambda: counts.update(["refused"]),
                    on_made=progress.advance,
                )
                for each in series
            )
            problems = [problem for made in await asyncio.gather(*jobs) for problem in made]
        replaced = []
        if refused := counts["refused"]:
            replaced.append(f"replaced {refused} whose questions are in the evaluation set")
        if faulty := counts["sampling/faulty_items_redrawn"]:
            replaced.append(f"replaced {faulty} faulty items")
        if not options.demonstrations:
            rows = [row_of(problem, config.system_prompt, options.format) for problem in problems]
            return rows, len({problem.recipe.task for problem in problems}), replaced
        known = [problem for problem in problems if problem.oracle is not None]
        shown = [demonstration_row(problem, config.system_prompt, pool) for problem in known]
        rows = [row for row in await with_progress(shown, "demonstrations") if row is not None]
    skipped = []
    if without := {problem.recipe.task for problem in problems if problem.oracle is None}:
        skipped.append(f"skipped tasks without a single oracle: {', '.join(sorted(without))}")
    if unsolved := len(known) - len(rows):
        skipped.append(f"skipped {unsolved} that their own verifier rejects")
    return rows, len({row["task"] for row in rows}), [*skipped, *replaced]


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
