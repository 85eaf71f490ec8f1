"""`compare`: evaluation results, paired by item."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..evaluation.comparability import shown
from ..evaluation.comparison import Comparison, compare, comparison_table, names_of
from ..evaluation.store import EvaluationResults, read_results
from ..evaluation.tables import missing_lines
from ..tasks.facts import LIBRARY
from ..util.command_line import Parser
from ..util.values import escape_control_characters, table


def main(arguments: Sequence[str]) -> int:
    """Print what changed from the first evaluation to the others."""
    parser = Parser("compare", "Compare evaluations with the first, paired by item.")
    for name in ("before", "after"):
        parser.option(name, "folder of an evaluation, or its samples file", type=Path)
    parser.option(
        "more", "others, in one table with these two", nargs="*", type=Path, default=[]
    )
    parser.flag(
        "--without-faulty-items",
        "leave out items that one of them marks as faulty; `rescore` marks older ones",
    )
    parser.flag("--json", "print JSON instead of a table")
    options = parser.parse(arguments)
    paths = [options.before, options.after, *options.more]
    evaluations = [read_results(path) for path in paths]
    left_out = 0
    if options.without_faulty_items:
        faulty = {s.item_key for e in evaluations for s in e.samples if s.is_faulty}
        evaluations = [_without(results, faulty) for results in evaluations]
        left_out = len(faulty)
    first, second, *more = evaluations
    comparisons = compare(first, second, *more)
    if options.json:
        print(json.dumps(_to_json(evaluations, comparisons, left_out), indent=2))
        return 0
    names = ["before", "after"]
    if more:
        names = names_of(
            [comparisons[0].before, *(comparison.after for comparison in comparisons)]
        )
    lines = _settings_lines(evaluations, names)
    if options.without_faulty_items:
        lines.append(f"{left_out} faulty items left out")
    for name, results in zip(names, evaluations, strict=True):
        if results.missing_items:
            lines += missing_lines(f"the set of {name}", results.missing_items)
    text = f"{table(lines)}\n{comparison_table(*comparisons)}"
    print(escape_control_characters(text.lstrip("\n")))
    return 0


def _to_json(
    evaluations: Sequence[EvaluationResults],
    comparisons: Sequence[Comparison],
    left_out: int,
) -> dict[str, Any]:
    """Return all of one comparison, or a list of several under `comparisons`."""
    first, *candidates = evaluations
    contents = []
    for candidate, comparison in zip(candidates, comparisons, strict=True):
        sides = {"before": first, "after": candidate}
        about = {
            "settings": first.differing(candidate),
            "missing_items": {side: e.missing_items for side, e in sides.items()},
            "made_with": {side: e.library_versions for side, e in sides.items()},
            "faulty_items_left_out": left_out,
        }
        contents.append({**about, **comparison.to_json()})
    return contents[0] if len(contents) == 1 else {"comparisons": contents}


def _settings_lines(
    evaluations: Sequence[EvaluationResults], names: Sequence[str]
) -> list[str]:
    """Return how each evaluation differs from the first one, but in its tasks' results."""
    first, *candidates = evaluations
    lines = []
    for name, candidate in zip(names[1:], candidates, strict=True):
        of_which = f"{name}: " if len(candidates) > 1 else ""
        lines += [
            f"{of_which}{setting}: {shown(value_before)} -> {shown(value_after)}"
            for setting, (value_before, value_after) in first.differing(
                candidate
            ).items()
        ]
        if first.samples == candidate.samples:
            lines.append(f"{first.path} and {candidate.path} are the same evaluation")
        if first.library_versions != candidate.library_versions:
            packages = [", ".join(e.library_versions) for e in (first, candidate)]
            lines.append(
                f"The items were made with {LIBRARY} {packages[0]} {names[0]} and {packages[1]} "
                f"{name}: items whose question differs are excluded, answers and verdicts may "
                "differ"
            )
    return lines


def _without(results: EvaluationResults, items: Collection[str]) -> EvaluationResults:
    """Return results without the samples of some items, named by their keys."""
    samples = tuple(s for s in results.samples if s.item_key not in items)
    return replace(results, samples=samples)
