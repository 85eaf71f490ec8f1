"""Recompute the tables of docs/leaderboard.md and tables.md without this package, and compare.

    python research/leaderboard/recompute.py [--imported FOLDER]

It reads the answers to each item in docs/leaderboard/SUITE/*.json, and the evaluations that `python
-m research.leaderboard import` wrote. Shares are means over tasks, intervals those of a bootstrap
that draws items within tasks, and a model is better than another if the paired difference over
items is beyond 1.96 standard errors.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "reasoning_gym_environment" / "tasks"
TABLES = Path(__file__).with_name("tables.md")
LEAST = 20
PAYS_ANY_ANSWER = "game_of_life_halting"
"""The task that doesn't count: its verifier pays any answer."""
ALSO_TRAINED = {
    "paper-easy": ("tower_of_hanoi",),
    "paper-hard": ("sentence_reordering", "syllogism", "tower_of_hanoi"),
    "small": ("tower_of_hanoi",),
}
"""Tasks whose items training asks too, since their levels have few questions, by suite."""
STATED = ("tokens", "temperature", "training")
"""Columns that repeat what a submitter says."""

Attempts = NDArray[np.int64]
"""Right and scored attempts by item, in two columns."""


def read(file: Path) -> tuple[dict[str, Attempts], dict[str, Any]]:
    [model] = json.loads(file.read_text(encoding="utf-8"))["models"]
    counts = {
        task: np.array([pair.split("/") for pair in items.split()], dtype=np.int64)
        for task, items in model["items"].items()
    }
    return counts, model


def of_common_items(
    models: Mapping[str, dict[str, Attempts]],
) -> dict[str, dict[str, Attempts]]:
    """Keep the items that all models have scored, of tasks with enough of them."""
    every = [*models.values()]
    scored = {
        task: np.all([own[task][:, 1] > 0 for own in every], axis=0)
        for task in every[0]
    }
    least = LEAST if max(len(own) for own in scored.values()) >= LEAST else 1
    tasks = [
        task
        for task, own in scored.items()
        if own.sum() >= least and task != PAYS_ANY_ANSWER
    ]
    return {
        m: {task: own[task][scored[task]] for task in tasks}
        for m, own in models.items()
    }


def share(own: Mapping[str, Attempts]) -> float:
    return float(
        np.mean(
            [right / scored for right, scored in (n.sum(axis=0) for n in own.values())]
        )
    )


def interval(own: Mapping[str, Attempts], draws: int = 1000) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile of the share over drawn items."""
    generator, total = np.random.default_rng(1), np.zeros(draws)
    for counts in own.values():
        drawn = counts[generator.integers(0, len(counts), (draws, len(counts)))].sum(
            axis=1
        )
        total += drawn[:, 0] / drawn[:, 1]
    low, high = np.percentile(total / len(own), [2.5, 97.5])
    return float(low), float(high)


def is_better(one: Mapping[str, Attempts], other: Mapping[str, Attempts]) -> bool:
    mean = variance = 0.0
    for task in one:
        a, b = (own[task][:, 0] / own[task][:, 1] for own in (one, other))
        mean += (a - b).mean()
        variance += (a - b).var(ddof=1) / len(a) if len(a) > 1 else 0.0
    return bool(mean > 1.96 * variance**0.5)


def floors_of(suite: str) -> dict[str, float]:
    """Return the higher floor by task: of a constant answer, or of a copy from the question."""
    by_suite = json.loads(
        (Path(__file__).with_name("floors.json")).read_text(encoding="utf-8")
    )
    if suite in by_suite:
        return dict(by_suite[suite])
    default = json.loads((TASKS / "chance_floors.json").read_text(encoding="utf-8"))[
        "floors"
    ]
    return {
        t: max(own[kind]["solved"] for kind in ("chance", "no_reasoning"))
        for t, own in default.items()
    }


def expected(suite: str, folder: Path) -> Iterator[tuple[str, str, float, float]]:
    """Yield model, column, figure and the difference that is allowed, in percent or as a number."""
    read_files = {file.stem: read(file) for file in sorted(folder.glob("*.json"))}
    models = of_common_items({name: counts for name, (counts, _) in read_files.items()})
    category = json.loads(
        (TASKS / "library_snapshot.json").read_text(encoding="utf-8")
    )["categories"]
    floors, rounding = floors_of(suite), 0.051
    for model, own in models.items():
        solved = share(own)
        yield model, "solved", 100 * solved, rounding
        yield model, "items", sum(map(len, own.values())), 0
        for end, value in zip(("low", "high"), interval(own), strict=True):
            yield model, end, 100 * value, 0.3 if solved else 100.0
        yield (
            model,
            "rank",
            1 + sum(is_better(other, own) for other in models.values()),
            0,
        )
        rest = {t: counts for t, counts in own.items() if t not in ALSO_TRAINED[suite]}
        if len(rest) < len(own):
            yield model, "without trained", 100 * share(rest), rounding
            yield model, "items of without trained", sum(map(len, rest.values())), 0
        above = solved - float(np.mean([floors[task] for task in own]))
        yield model, "above chance", 100 * above, rounding
        by_category: defaultdict[str, dict[str, Attempts]] = defaultdict(dict)
        for task, counts in own.items():
            by_category[category[task]][task] = counts
        for name, part in by_category.items():
            if (items := sum(map(len, part.values()))) >= LEAST:
                yield model, name, 100 * share(part), rounding
                yield model, f"items of {name}", items, 0
        if published := read_files[model][1]["published"]:
            means = np.mean([published[task] for task in own], axis=0)
            yield model, "score as published", means[0], 0.00051
            yield model, "score here", means[1], 0.00051
            yield model, "solved with faulty items", 100 * means[2], rounding


def shown(page: str, suite: str) -> dict[tuple[str, str], float]:
    """Return the figures of the page's table by model and column."""
    table = page.partition(f"<!-- table: {suite} -->")[2].partition(
        "<!-- end of table -->"
    )[0]
    head, _, *rows = [
        [cell.strip() for cell in line[2:-2].split(" | ")]
        for line in table.splitlines()
        if line.startswith("|")
    ]
    figures: dict[tuple[str, str], float] = {}
    for cells in rows:
        row = dict(zip(head, cells, strict=True))
        model = row.pop("model")
        for column in STATED:
            row.pop(column, None)
        low, high = row.pop("95 %").split(" to ")
        row |= {"low": low, "high": high}
        for column, text in row.items():
            name, _, items = column.partition(" (")
            if text:
                figures[model, name] = float(text.rstrip("%"))
            if items:
                size = "items" if name == "solved" else f"items of {name}"
                figures[model, size] = float(items.rstrip(")").replace(",", ""))
    return figures


def disagreements(docs: Path) -> list[str]:
    """Return what the pages say otherwise, what tables.md lacks, and what they have too much."""
    found = []
    short, whole = (
        path.read_text(encoding="utf-8") for path in (docs / "leaderboard.md", TABLES)
    )
    for folder in sorted(
        each for each in (docs / "leaderboard").iterdir() if each.is_dir()
    ):
        main, figures = shown(short, folder.name), shown(whole, folder.name)
        for model, column, value, allowed in expected(folder.name, folder):
            of_tables = figures.pop((model, column), None)
            for on_page in {of_tables, main.pop((model, column), of_tables)}:
                if on_page is None or abs(on_page - value) > allowed:
                    found.append(
                        f"{folder.name}, {model}, {column}: {on_page}, recomputed {value:.3f}"
                    )
        found += [
            f"{folder.name}, {model}, {column}: not recomputed"
            for model, column in (*figures, *main)
        ]
    return found


def miscounted(docs: Path, imported: Path) -> list[str]:
    """Return the files with another number of right or scored attempts of a task's items."""
    found = []
    for file in sorted((docs / "leaderboard").glob("paper-*/*.json")):
        suite, counts = file.parent.name, read(file)[0]
        listed = json.loads(
            (TASKS.parent / "problems" / "suite_files" / f"{suite}.json").read_text(
                encoding="utf-8"
            )
        )
        items = {(of["task"], seed) for of in listed["sets"] for seed, _ in of["items"]}
        right: Counter[str] = Counter()
        with (imported / suite / file.stem / "samples.jsonl").open(
            encoding="utf-8"
        ) as lines:
            for row in map(json.loads, lines):
                if (row["recipe"]["task"], row["recipe"]["seed"]) in items:
                    right[row["recipe"]["task"]] += sum(
                        r["status"] == "solved" for r in row["rollouts"]
                    )
        found += [
            f"{file}, {task}"
            for task, own in counts.items()
            if own[:, 0].sum() != right[task]
        ]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--imported", type=Path)
    options = parser.parse_args()
    wrong = disagreements(ROOT / "docs")
    wrong += miscounted(ROOT / "docs", options.imported) if options.imported else []
    print("\n".join(wrong) or "all figures are those of the page")
    sys.exit(bool(wrong))
