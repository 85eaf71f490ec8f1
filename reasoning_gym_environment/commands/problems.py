"""`problems`: problems of chosen tasks and levels as data, with or without solutions."""

from __future__ import annotations

import asyncio
from argparse import SUPPRESS, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, FixableError
from ..evaluation.options import parse_difficulties
from ..evaluation.planning import Part
from ..evaluation.rows_for_model import rows_for_model
from ..evaluation.store import read_results
from ..inference.prompts import build_messages, resolve_system_prompt
from ..integrations.nemo_gym import nemo_gym_row
from ..integrations.shared import demonstration_row, problem_row
from ..problems.repeats import repeat_warnings
from ..problems.selection import select
from ..problems.sets import make_problems, training_recipes
from ..problems.split import SplitProblems, level_name
from ..records import Ladder, Problem, Recipe
from ..sandbox.pool import Generate, TaskPool
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
from ..storage.rows import StoredGroup
from ..util.command_line import Parser, number
from ..util.progress import Progress, with_progress
from ..util.values import escape_control_characters
from ._evaluation_items import evaluation_problems, planned_items
from .export import add_output_options, require_jsonl_for_nemo_gym


def main(arguments: Sequence[str]) -> int:
    """Write the rows and print their counts."""
    options = build_parser().parse(arguments)
    if options.demonstrations and options.format != "prompts":
        raise ConfigurationError("--demonstrations needs --format prompts")
    if options.from_evaluation is not None and options.levels:
        raise ConfigurationError(
            "--levels: --from-evaluation chooses the levels; give one of them"
        )
    if options.difficulties and (options.split == "train" or options.levels):
        raise ConfigurationError("--difficulties needs --split eval, and no --levels")
    if options.target is not None and options.from_evaluation is None:
        raise ConfigurationError("--target needs --from-evaluation")
    if options.output is not None:
        require_jsonl_for_nemo_gym(options)
        path = targets(options.output, ["train"])["train"]
        require_replaceable(path, force=options.force)
    elif options.demonstrations or options.format != "prompts":
        raise ConfigurationError("-o is missing: what is printed is for people")
    rows, tasks, skipped = asyncio.run(make(options, read_environment(options)))
    if not rows:
        raise FixableError(f"no problems to write: {'; '.join(skipped)}")
    if options.output is None:
        texts = (
            f"{r['recipe']}\n{r['question'].strip()}\noracle: {r['oracle']}"
            for r in rows
        )
        print(escape_control_characters("\n\n".join([*texts, *skipped])))
        return 0
    write_splits(options.output, {"train": rows})
    noun = "demonstrations" if options.demonstrations else "problems"
    print(f"{len(rows)} {noun} of {tasks} tasks in {path}", *skipped, sep="\n")
    return 0


def build_parser() -> Parser:
    parser = Parser(
        "problems",
        "Print problems of chosen tasks and levels, or write them to a file. No server is used.",
    )
    tasks: Any = {"nargs": "*", "default": SUPPRESS, "metavar": "TASK"}
    parser.option(
        "env.include_tasks", "tasks and categories, as env.include_tasks", **tasks
    )
    add_output_options(parser, required=False)
    parser.option(
        "--count",
        "problems of each task and level",
        type=number(int, ge=1),
        required=True,
    )
    _add_levels(parser)
    parser.option(
        "--split",
        "train uses env.seed; eval has the items that evaluate asks with env.eval_seed; they share "
        "no question but of levels that have few",
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
    add_settings(
        parser,
        "include_tasks",
        "exclude_tasks",
        "task_parameters",
        "seed",
        "group_size",
        "system_prompt",
        "answer_format",
        "eval_seed",
        "skip_faulty_items",
        "solved_threshold",
        "generation_timeout",
    )
    return parser


def _add_levels(parser: Parser) -> None:
    """Add the options that choose the levels."""
    parser.option(
        "--levels",
        "levels of each task, 0 is the easiest (default: the library's configuration)",
        type=read_levels,
        metavar="N,N",
    )
    parser.option(
        "--difficulties",
        "instead, with --split eval: difficulties of each task, as env.eval_difficulties",
        type=parse_difficulties,
        default=[],
        metavar="D,D",
    )
    parser.option(
        "--from-evaluation",
        "instead: each task at the levels that teach this evaluation's model, near the --target "
        "share; tasks without such levels are left out, and their category's others get their "
        "problems",
        type=Path,
        metavar="DIR",
    )
    parser.option(
        "--target",
        "share of solved attempts to aim at, where groups of env.group_size keep 0.9 of the best "
        "level's signal (default: 0.5)",
        type=number(float, gt=0, lt=1),
    )


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
    source = options.from_evaluation
    evaluated = read_results(source).samples if source else ()
    async with TaskPool(pool_settings(config), Counter()) as pool:
        selection = await select(
            pool, config, tasks=config.include_tasks, with_ladders=True
        )
        ladders = {
            task: selection.ladders[task] for task in sorted(selection.categories)
        }
        skipped: list[str] = []
        parts: Sequence[Part]
        if evaluated:
            require_groups(config.group_size)
            rows_wanted = rows_for_model(
                evaluated,
                ladders,
                selection.categories,
                target=0.5 if options.target is None else options.target,
                count=options.count,
                group_size=config.group_size,
            )
            skipped = rows_wanted.lines(config.group_size)
            skipped += not_evaluated(evaluated, ladders, source)
            parts = rows_wanted.parts
            ladders = {part.recipe.task: ladders[part.recipe.task] for part in parts}
        else:
            require_levels(levels, ladders)
            parts = [
                Part(level_recipe(task, level, ladder), options.count)
                for task, ladder in ladders.items()
                for level in levels
            ]
        counts: Counter[str] = Counter()
        generate = SplitProblems.of_pool(
            pool, counts, skip_faulty_items=config.skip_faulty_items
        ).make
        if trains:
            problems = await generate_parts(generate, config, parts)
        else:
            planned = planned_items(options, config, ladders, parts)
            asked = {sample.question for sample in evaluated}
            problems, few = await evaluation_problems(generate, planned, asked)
            skipped += few
            skipped += also_trained_on(problems)
        replaced = [*replacements(counts), *repeat_warnings(problems)]
        if options.demonstrations:
            rows, left_out = await demonstrate(problems, config.system_prompt, pool)
            tasks = {row["task"] for row in rows}
            return rows, len(tasks), [*skipped, *left_out, *replaced]
    rows = [row_of(problem, config, options.format) for problem in problems]
    tasks = {problem.recipe.task for problem in problems}
    return rows, len(tasks), [*skipped, *replaced]


async def generate_parts(
    generate: Generate, config: EnvironmentSettings, parts: Sequence[Part]
) -> list[Problem]:
    """Generate the training problems of each part."""
    progress = Progress("problems", total=sum(part.size for part in parts))
    jobs = []
    for recipe, size in parts:
        overrides = config.task_parameters.get(recipe.task, {})
        recipes = training_recipes(
            config.seed, recipe.task, recipe.level, {**recipe.parameters, **overrides}
        )
        jobs.append(
            make_problems(
                generate,
                recipes,
                size,
                on_made=progress.advance,
            )
        )
    async with progress.shown():
        problems_by_part = await asyncio.gather(*jobs)
    return list(chain.from_iterable(problems_by_part))


async def demonstrate(
    problems: Sequence[Problem], system_prompt: str, pool: TaskPool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows with the oracle as the answer, and a line for each reason to skip problems."""
    answered = [problem for problem in problems if problem.oracle is not None]
    jobs = [demonstration_row(problem, system_prompt, pool) for problem in answered]
    rows = [
        row for row in await with_progress(jobs, "demonstrations") if row is not None
    ]
    skipped: list[str] = []
    without_oracle = {
        problem.recipe.task for problem in problems if problem.oracle is None
    }
    if without_oracle:
        skipped.append(
            f"skipped tasks without a single oracle: {', '.join(sorted(without_oracle))}"
        )
    unsolved = len(answered) - len(rows)
    if unsolved:
        skipped.append(f"skipped {unsolved} that their own verifier rejects")
    return rows, skipped


def replacements(counts: Counter[str]) -> list[str]:
    """Return a line for the problems that were replaced, unless there are none."""
    faulty = counts["sampling/faulty_items_redrawn"]
    return [f"replaced {faulty} faulty items"] if faulty else []


def also_trained_on(problems: Iterable[Problem]) -> list[str]:
    """Return a line that names the levels which training asks too, unless there are none."""
    names = {
        level_name(problem.recipe) for problem in problems if problem.also_trained_on
    }
    if not names:
        return []
    return [f"few questions, which training asks too: {', '.join(sorted(names))}"]


def level_recipe(task: str, level: int | None, ladder: Ladder) -> Recipe:
    """Return what the recipes of a task's level have in common: all but the seed."""
    return Recipe(
        task=task,
        seed=0,
        level=level,
        parameters={} if level is None else ladder[level],
    )


def require_groups(group_size: int) -> None:
    """Raise ConfigurationError for groups of one, which never have signal."""
    if group_size == 1:
        raise ConfigurationError(
            "env.group_size must be ≥ 2 with --from-evaluation, got 1: no level gives a group of "
            "one rollout signal; set the group size of your trainer"
        )


def not_evaluated(
    samples: Iterable[StoredGroup], tasks: Collection[str], source: Path
) -> list[str]:
    """Return lines for evaluated tasks that were not asked for, and for those without score."""
    evaluated = {sample.task for sample in samples if sample.scored}
    lines = []
    not_requested = sorted(evaluated - set(tasks))
    if not_requested:
        lines.append(
            f"left out, evaluated but not among these tasks: {', '.join(not_requested)}"
        )
    missing = len(set(tasks) - evaluated)
    if missing:
        lines.append(f"left out, without a score in {source}: {missing} tasks")
    return lines


def row_of(
    problem: Problem, config: EnvironmentSettings, layout: str
) -> dict[str, Any]:
    """Return a problem's row in a format, with the messages that the environment sends."""
    if layout == "prompts":
        return problem_row(problem, config.system_prompt, config.answer_format)
    system = resolve_system_prompt(config.system_prompt, config.answer_format)
    messages = build_messages(system, problem.question)
    if layout == "nemo-gym":
        return nemo_gym_row(problem, messages)
    return (verl_row if layout == "verl" else skyrl_row)(problem.recipe, messages)


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
