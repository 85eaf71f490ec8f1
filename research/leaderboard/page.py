"""Make docs/leaderboard.md, its picture and tables.md from standings; explain how ranks move.

Standings are the files DOCS/leaderboard/SUITE/*.json. docs/leaderboard.md has the main columns,
tables.md beside this module all of them.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.leaderboard import common_items, rank
from reasoning_gym_environment.evaluation.store import read_results
from reasoning_gym_environment.problems.suites import Suite, load_suite
from reasoning_gym_environment.records import FORMAT_FAILURES, Status, recipe_key
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.scoring.guards import max_score
from reasoning_gym_environment.storage.rows import StoredRollout
from reasoning_gym_environment.util.values import group_by

from .published import STORED_SCORE
from .standings import PublishedStanding, means, published_table, read_standings

BEGIN, END = "<!-- table: {} -->", "<!-- end of table -->"
TABLES = Path(__file__).with_name("tables.md")
"""The page with all columns."""

MAIN = (
    "rank",
    "model",
    "solved",
    "95 %",
    "without trained",
    "above chance",
    "tokens",
    "temperature",
    "training",
    "score as published",
)
"""The columns of docs/leaderboard.md, as far as a table has them and fills them."""

EQUAL = 1e-6
"""Published scores are rounded."""

SHOWN = 15
"""Tasks in the table of causes."""


def boards(folder: Path) -> Iterator[tuple[str, list[PublishedStanding], Suite]]:
    """Yield each suite's name with its standings."""
    for suite in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        known = load_suite(suite)
        files = sorted((folder / suite).glob("*.json"))
        yield (
            suite,
            [each for file in files for each in read_standings(file, known)],
            known,
        )


def fill(page: str, folder: Path, change: Callable[[str], str] = str) -> str:
    """Return the page with the table of each suite between its marks, changed by a function."""
    for name, standings, suite in boards(folder):
        head, mark, rest = page.partition(BEGIN.format(name))
        if not mark:
            raise SystemExit(f"the page has no {BEGIN.format(name)}")
        table = change(published_table(standings, suite))
        page = f"{head}{mark}\n\n{table}\n\n{END}{rest.partition(END)[2]}"
    return page


def main_columns(table: str) -> str:
    """Return a table's columns of MAIN with a cell that isn't empty, without the text below it.

    Example:
        >>> print(main_columns("| rank | tokens |\\n| --- | --- |\\n| 1 |  |\\n\\nA text."))
        | rank |
        | --- |
        | 1 |
    """
    head, *rows = [
        line[2:-2].split(" | ") for line in table.splitlines() if line[:1] == "|"
    ]
    places = [
        place
        for place, name in enumerate(head)
        if name.partition(" (")[0] in MAIN and any(row[place] for row in rows[1:])
    ]
    return "\n".join(
        f"| {' | '.join(cells[place] for place in places)} |" for cells in (head, *rows)
    )


def causes(folders: Sequence[Path], suite: str) -> str:
    """Return by task, over all models: the published score, and what lowers or raises it."""
    clean = {recipe_key(recipe) for recipe, _ in load_suite(suite).recipes()}
    samples = [sample for folder in folders for sample in read_results(folder).samples]
    rows = []
    for task, own in group_by(lambda sample: sample.task, samples).items():
        kept = [sample for sample in own if recipe_key(sample.recipe) in clean]
        published, score, solved = means(own)
        right = means(kept)[2] if kept else None
        effects = (
            score - published,
            solved - score,
            0.0 if right is None else right - solved,
        )
        rows.append((sum(map(abs, effects)), task, published, *effects, right))
    lines = [
        "| task | score as published | verdicts | partial credit | faulty items | solved |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for _, task, published, *shown, right in sorted(rows, reverse=True)[:SHOWN]:
        cells = " | ".join(
            f"{effect:+.3f}" if abs(effect) >= 0.0005 else "" for effect in shown
        )
        last = "no item" if right is None else f"{right:.3f}"
        lines.append(f"| `{task}` | {published:.3f} | {cells} | {last} |")
    return "\n".join(lines)


async def differences(folders: Sequence[Path]) -> str:
    """Return how many scores equal the published ones, and why the others don't, by task."""
    counts: Counter[tuple[str, str]] = Counter()
    async with TaskPool(PoolSettings(processes=2), Counter()) as pool:
        samples = [
            sample for folder in folders for sample in read_results(folder).samples
        ]
        by_item = group_by(lambda sample: recipe_key(sample.recipe), samples)
        for own in by_item.values():
            entry = pickle.loads((await pool.generate(own[0].recipe)).entry)
            for rollout in (r for sample in own for r in sample.rollouts):
                counts[reason(own[0].task, entry, rollout), own[0].task] += 1
    every = sum(counts.values())
    by_reason = group_by(lambda pair: pair[0][0], counts.items())
    lines = [
        f"{every} answers",
        "| reason | answers | share | tasks with most |",
        "| --- | --- | --- | --- |",
    ]
    for name, pairs in sorted(by_reason.items()):
        number = sum(count for _, count in pairs)
        most = sorted(((count, task) for (_, task), count in pairs), reverse=True)[:6]
        tasks = ", ".join(f"`{task}` {count}" for count, task in most)
        lines.append(f"| {name} | {number} | {number / every:.2%} | {tasks} |")
    return "\n".join(lines)


def reason(task: str, entry: Any, rollout: StoredRollout) -> str:
    """Return why an answer's score differs from the published one, or that it doesn't."""
    published, score = rollout.other.get(STORED_SCORE), rollout.raw_score
    if published is None or score is None:
        return "not scored"
    if abs(score - published) < EQUAL:
        return "equal"
    if published > 1:
        return "published above 1"
    if rollout.status in FORMAT_FAILURES:
        return "no single answer"
    if rollout.status is Status.REJECTED:
        return "rejected before the verifier"
    if (
        score < published
        and max_score(task, rollout.answer or "", entry) < published - EQUAL
    ):
        return "guard"
    return "verifier lower" if score < published else "verifier higher"


def plot(path: Path, folder: Path) -> None:
    """Draw the solved shares with their intervals, an axis for each suite; needs matplotlib."""
    try:
        from ..pictures import figure, save
    except ModuleNotFoundError as missing:
        raise FixableError(
            "the tables are filled, but the picture needs matplotlib: `pip install matplotlib`, "
            "and repeat this command"
        ) from missing

    known = {}
    for name, standings, _ in boards(folder):
        ranked = rank(common_items(standings)[0].values())
        known[name] = {standings[number].model: solved for _, number, solved in ranked}
    best: dict[str, float] = {}
    for model, solved in chain.from_iterable(own.items() for own in known.values()):
        best[model] = max(best.get(model, 0), solved.value)
    order = sorted(best, key=lambda model: best[model])
    made, all_axes = figure(len(known), width=3.5 * len(known) + 2)
    for axes, (suite, own) in zip(all_axes, known.items(), strict=True):
        shown = [model for model in order if model in own]
        for place, model in enumerate(shown):
            value, _, low, high = (100 * (part or 0) for part in own[model])
            error = [[max(0, value - low)], [max(0, high - value)]]
            axes.errorbar(value, place, xerr=error, fmt="o", color="C0")
        axes.set_yticks(
            range(len(shown)), [model.partition("_")[2] or model for model in shown]
        )
        axes.set_xlim(0, 100)
        axes.set_title(suite)
        axes.set_xlabel("right answers, %, with 95 % interval")
    save(made, path)


def make(docs: Path, imported: Path | None) -> str:
    """Write the pages and the picture; return what the imported answers say, if any."""
    page, folder = docs / "leaderboard.md", docs / "leaderboard"
    short = fill(page.read_text(encoding="utf-8"), folder, main_columns)
    page.write_text(short, encoding="utf-8")
    TABLES.write_text(
        fill(TABLES.read_text(encoding="utf-8"), folder), encoding="utf-8"
    )
    plot(docs / "images" / "leaderboard.svg", folder)
    said = [str(page), str(TABLES)]
    for suite in sorted(imported.iterdir()) if imported else ():
        models = sorted(suite.iterdir())
        said += [
            suite.name,
            causes(models, suite.name),
            asyncio.run(differences(models)),
        ]
    return "\n\n".join(said)
