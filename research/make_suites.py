"""Make the suites of the package, or verify that they are made again.

    python -m research.make_suites FOLDER [--paper published_answers.jsonl.gz] [--only small,full]

The paper's suites need the file of published answers, for its tasks and parameters. Takes minutes.
A suite whose items change gets another version; move the file of the one before to
research/leaderboard/suites/NAME@VERSION.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.evaluation.planning import planned_recipes
from reasoning_gym_environment.problems.identity import problem_identity
from reasoning_gym_environment.problems.seeds import evaluation_recipe, redrawn_seed
from reasoning_gym_environment.problems.sets import make_distinct
from reasoning_gym_environment.problems.split import (
    PUBLISHED,
    SplitProblems,
    published_hash,
)
from reasoning_gym_environment.problems.suites import (
    EARLIER,
    LeftOut,
    load_suite,
    question_sha256,
    suite_sha256,
    with_questions,
)
from reasoning_gym_environment.records import (
    Fault,
    FaultKind,
    Ladder,
    Problem,
    Recipe,
    recipe_key,
)
from reasoning_gym_environment.sandbox.pool import (
    Generate,
    PoolSettings,
    TaskPool,
    default_processes,
)
from reasoning_gym_environment.tasks.catalogue import proven_tasks
from reasoning_gym_environment.util.progress import with_progress
from reasoning_gym_environment.util.values import group_by

from .leaderboard.published import read_published

SEED = 2026
VERSIONS = {"small": 3, "medium": 3, "full": 3, "paper-easy": 2, "paper-hard": 2}
PACKAGES = ("reasoning-gym", "reasoning-gym-environment")
SETTINGS = {
    "system_prompt": (
        "Think about the problem as long as you need. Then give your final answer once, between "
        "<answer> and </answer>. Write nothing inside the answer tags but the answer itself, in "
        "exactly the form the problem asks for. A reply with no answer, or with more than one, "
        "counts as wrong."
    ),
    "eval_attempts": 1,
    "eval_temperature": 0.6,
    "max_token_length": 16384,
}

Planned = tuple[Recipe, float | None]
Made = tuple[Problem, float | None]


def all_levels(ladders: dict[str, Ladder], per_level: int) -> list[Planned]:
    """Plan items of every level of every ladder."""
    return [
        (
            evaluation_recipe(SEED, task, index, level, parameters),
            level / (len(ladder) - 1) if len(ladder) > 1 else 0.0,
        )
        for task, ladder in sorted(ladders.items())
        for level, parameters in enumerate(ladder)
        for index in range(per_level)
    ]


def planned(
    ladders: dict[str, Ladder], per_task: int, difficulties: Sequence[float]
) -> list[Planned]:
    """Plan items at the default configuration and at difficulties."""
    return planned_recipes(
        eval_seed=SEED,
        tasks=sorted(ladders),
        num_eval_samples_per_task=per_task,
        eval_difficulties=difficulties,
        ladders=ladders,
    )


def of_paper(path: Path, name: str, left: Sequence[LeftOut]) -> list[Recipe]:
    """Return the paper's recipes of one set, each once, but for those left out before."""
    items = [item for item in read_published(path) if item.set == name]
    recipes = {recipe_key(item.recipe): item.recipe for item in items}
    for each in left:
        recipes.pop(recipe_key(recipe_of(each)), None)
    return list(recipes.values())


def recipe_of(left: LeftOut) -> Recipe:
    return Recipe(task=left.task, seed=left.seed, parameters=left.parameters)


def left_out_before(name: str) -> list[LeftOut]:
    """Return what the version before left out: it stays out, as an item that takes too long."""
    before = VERSIONS[name] - 1
    file = Path(__file__).parents[1] / EARLIER / f"{name}@{before}.json"
    return load_suite(str(file)).left_out if before else []


def manifest(
    name: str, about: str, made: Iterable[Made], left: Sequence[Any]
) -> dict[str, Any]:
    """Return a suite but for its hash."""

    def key(item: Made) -> tuple[str, str, str]:
        recipe = item[0].recipe
        return (
            recipe.task,
            str(sorted(recipe.parameters.items())),
            f"{recipe.level} {item[1]}",
        )

    sets = group_by(key, made).values()
    return {
        "name": name,
        "version": VERSIONS[name],
        "about": about,
        "made_with": {package: version(package) for package in PACKAGES},
        "settings": SETTINGS,
        "sets": [
            {
                "task": of[0][0].recipe.task,
                "level": of[0][0].recipe.level,
                "difficulty": of[0][1],
                "parameters": dict(of[0][0].recipe.parameters),
                "items": [[p.recipe.seed, question_sha256(p.question)] for p, _ in of],
            }
            for of in sets
        ],
        "left_out": left,
    }


async def main(folder: Path, paper: Path | None, only: set[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # A busy machine must not leave out what takes longer there.
    settings = PoolSettings(processes=default_processes(), generation_timeout=60.0)
    pool = TaskPool(settings, Counter())
    await pool.start()
    try:
        await pool.discover(proven=proven_tasks())
        ladders = {task: known.levels for task, known in (await pool.ladders()).items()}
        split = SplitProblems.of_pool(pool, Counter(), skip_faulty_items=True)
        for name, about, items in (
            ("small", "five items of every task", planned(ladders, 5, [])),
            (
                "medium",
                "five items of every task, and five at each of three difficulties",
                planned(ladders, 5, [0.0, 0.5, 1.0]),
            ),
            (
                "full",
                "ten items of every task, or more if its levels are few, and five at each of its "
                "levels: at least twenty",
                [
                    item
                    for task, ladder in sorted(ladders.items())
                    for item in planned(
                        {task: ladder}, max(10, 20 - 5 * len(ladder)), []
                    )
                ]
                + all_levels(ladders, 5),
            ),
        ):
            if name not in only:
                continue
            parts = group_by(lambda item: item[0].task, items).values()
            jobs = [make_task(split.make, part) for part in parts]
            made = list(chain.from_iterable(await with_progress(jobs, name)))
            write(folder, manifest(name, about, made, []))
        if paper is None:
            return
        published: set[str] = set()
        for name in {"paper-easy", "paper-hard"} & only:
            before = left_out_before(name)
            recipes = of_paper(paper, name, before)
            problems = await with_progress(
                [make_or_fault(pool.generate_fixed, recipe) for recipe in recipes], name
            )
            kept, left = without_repeats(problems)
            left = [*to_builtins(before), *left]
            about = (
                f"the items of the reasoning-gym paper, set {name.partition('-')[2]}"
            )
            made = [(problem, None) for problem in kept]
            write(folder, manifest(name, about, made, left))
            # The paper asks also what its suite leaves out.
            recipes_before = map(recipe_of, before)
            problems += await with_progress(
                [
                    make_or_fault(pool.generate_fixed, recipe)
                    for recipe in recipes_before
                ],
                f"{name}, left out before",
            )
            published.update(
                published_hash(problem_identity(problem))
                for problem in problems
                if problem.question
            )
        if len({"paper-easy", "paper-hard"} & only) == 2:
            lines = "".join(f"{line}\n" for line in sorted(published))
            (folder / PUBLISHED.name).write_text(lines, encoding="ascii")
    finally:
        await pool.close()


async def make_task(generate: Generate, planned: Sequence[Planned]) -> list[Made]:
    """Make the items of a task; none repeats a question of its others, at any level."""
    made: list[Made] = []
    for part in group_by(lambda item: item[0].level, planned).values():
        asked = {problem.question for problem, _ in made}
        problems = await make_distinct(
            partial(make, generate), [recipe for recipe, _ in part], asked=asked
        )
        for problem, (recipe, difficulty) in zip(problems, part, strict=True):
            if isinstance(problem, Problem):
                made.append((problem, difficulty))
            else:
                print(f"{recipe.task} has no other question at level {recipe.level}")
    return made


def without_repeats(problems: Sequence[Problem]) -> tuple[list[Problem], list[Any]]:
    """Return the sound problems whose question none before them asks, and entries of the others."""
    first: dict[tuple[str, str], Problem] = {}
    kept = []
    left = []
    for problem in problems:
        same = first.get((problem.recipe.task, problem.question))
        if problem.fault:
            left.append(
                left_out(problem, problem.fault.kind.value, problem.fault.detail)
            )
        elif same:
            left.append(
                left_out(problem, "repeated", f"asks what seed {same.recipe.seed} asks")
            )
        else:
            first[problem.recipe.task, problem.question] = problem
            kept.append(problem)
    return kept, left


def left_out(problem: Problem, fault: str, detail: str) -> dict[str, Any]:
    return {
        "task": problem.recipe.task,
        "parameters": dict(problem.recipe.parameters),
        "seed": problem.recipe.seed,
        "fault": fault,
        "detail": detail,
    }


async def make(generate: Generate, recipe: Recipe) -> Problem:
    """Make a problem; draw again where the library fails."""
    while True:
        try:
            return await generate(recipe)
        except GenerationError as error:
            print(f"drawn again: {error}")
            recipe = replace(recipe, seed=redrawn_seed(recipe.seed))


async def make_or_fault(generate: Generate, recipe: Recipe) -> Problem:
    """Make a problem; where the library has none, return one without a question."""
    try:
        return await generate(recipe)
    except GenerationError as error:
        fault = Fault(kind=FaultKind.UNANSWERABLE, detail=str(error))
        return Problem(recipe=recipe, question="", oracle=None, entry=b"", fault=fault)


def encode_suite(manifest: Mapping[str, Any]) -> str:
    """Return the file of a suite from its other keys: JSON with its hashes, a line for each set.

    Args:
        manifest: with the whole hash of each question.
    """
    digests = [digest for of in manifest["sets"] for _, digest in of["items"]]
    sealed = with_questions(manifest, (digest[:8] for digest in digests))
    sealed["sha256"] = suite_sha256(manifest)
    sealed["file_sha256"] = suite_sha256(sealed)
    lines = []
    for key, value in sealed.items():
        if isinstance(value, list) and value:
            rows = ",\n  ".join(map(json.dumps, value))
            lines.append(f"{json.dumps(key)}: [\n  {rows}\n ]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def write(folder: Path, suite: dict[str, Any]) -> None:
    path = folder / f"{suite['name']}.json"
    path.write_text(encode_suite(suite), encoding="utf-8")
    items = sum(len(of["items"]) for of in suite["sets"])
    print(f"{path}: {items} items, {len(suite['left_out'])} left out")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--paper", type=Path)
    parser.add_argument("--only", default="small,medium,full,paper-easy,paper-hard")
    options = parser.parse_args()
    asyncio.run(main(options.folder, options.paper, set(options.only.split(","))))
