"""`compare`: two evaluation results, paired by item."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import FixableError
from ..evaluation.comparison import compare, comparison_table
from ..evaluation.store import EvaluationResults, read_results
from ..evaluation.tables import missing_lines
from ..records import ATROPOS_SOLVED_SCORE
from ..tasks.facts import LIBRARY
from ..util.command_line import Parser
from ..util.values import escape_control_characters, table


def main(arguments: Sequence[str]) -> int:
    """Print what changed between two evaluations."""
    parser = Parser("compare", "Compare two evaluations, paired by item.")
    for name in ("before", "after"):
        parser.option(name, "folder of an evaluation, or its samples file", type=Path)
    parser.flag(
        "--without-faulty-items",
        "leave out items that one of them marks as faulty; `rescore` marks older ones",
    )
    parser.flag("--json", "print JSON instead of a table")
    options = parser.parse(arguments)
    before = read_results(options.before)
    after = read_results(options.after)
    require_one_rule(before, after)
    settings = before.differing(after)
    missing_items = {"before": before.missing_items, "after": after.missing_items}
    versions = {"before": before.library_versions, "after": after.library_versions}
    left_out = 0
    if options.without_faulty_items:
        faulty = {s.item_key for s in (*before.samples, *after.samples) if s.is_faulty}
        before, after = (_without(results, faulty) for results in (before, after))
        left_out = len(faulty)
    comparison = compare(before.samples, after.samples)
    if comparison is None:
        reasons = [f"{n} ({shown(a)}, {shown(b)})" for n, (a, b) in settings.items()]
        if {s.task for s in before.samples}.isdisjoint(s.task for s in after.samples):
            reasons = ["all tasks"]
        differs = ", ".join(reasons) or "the questions, or which items are scored"
        raise FixableError(
            escape_control_characters(
                f"{before.path} and {after.path} have no scored item in common; they differ in "
                f"{differs}"
            )
        )
    require_comparable(before, after)
    if options.json:
        about = {
            "settings": settings,
            "missing_items": missing_items,
            "made_with": versions,
            "faulty_items_left_out": left_out,
        }
        print(json.dumps({**about, **comparison.to_json()}, indent=2))
        return 0
    lines = [
        f"{name}: {shown(value_before)} -> {shown(value_after)}"
        for name, (value_before, value_after) in settings.items()
    ]
    if before.samples == after.samples:
        lines.append(f"{before.path} and {after.path} are the same evaluation")
    if versions["before"] != versions["after"]:
        packages_before, packages_after = map(", ".join, versions.values())
        lines.append(
            f"The items were made with {LIBRARY} {packages_before} before and {packages_after} "
            "after: items whose question differs are excluded, answers and verdicts may differ"
        )
    if options.without_faulty_items:
        lines.append(f"{left_out} faulty items left out")
    for name, items in missing_items.items():
        if items:
            lines += missing_lines(f"the set of {name}", items)
    text = f"{table(lines)}\n{comparison_table(comparison)}"
    print(escape_control_characters(text.lstrip("\n")))
    return 0


def _without(results: EvaluationResults, items: Collection[str]) -> EvaluationResults:
    """Return results without the samples of some items, named by their keys."""
    samples = tuple(s for s in results.samples if s.item_key not in items)
    return replace(results, samples=samples)


def require_one_rule(before: EvaluationResults, after: EvaluationResults) -> None:
    """Raise FixableError if what decides the side of a question differs."""
    rules = [before.split_rule, after.split_rule]
    if None in rules or rules[0] == rules[1]:
        return
    raise FixableError(
        f"{before.path} was drawn by the rule {rules[0]}, {after.path} by the rule {rules[1]}: "
        "only by the rule question does training ask nothing of the evaluation; evaluate again "
        "what was drawn by the other"
    )


def require_comparable(before: EvaluationResults, after: EvaluationResults) -> None:
    """Raise FixableError if the rules of scoring or the suites differ."""
    rules = [
        results.settings.get("solved_threshold", ATROPOS_SOLVED_SCORE)
        for results in (before, after)
    ]
    if rules[0] != rules[1]:
        solved_before, solved_after = (
            "right answers" if rule is None else f"scores from {shown(rule)} on"
            for rule in rules
        )
        raise FixableError(
            f"{before.path} counts {solved_before} as solved, {after.path} {solved_after}: "
            "`rescore` one of them, and compare with what it writes"
        )
    formats = [
        results.settings.get("answer_format", "tags") for results in (before, after)
    ]
    if formats[0] != formats[1]:
        raise FixableError(
            f"{before.path} has the answer_format {shown(formats[0])}, {after.path} "
            f"{shown(formats[1])}: `rescore` one of them with the other's --env.answer_format, and "
            "compare with what it writes"
        )
    versions_before = {s.item_key: s.scoring_version for s in before.samples}
    for sample in after.samples:
        version = versions_before.get(sample.item_key, sample.scoring_version)
        if version != sample.scoring_version:
            raise FixableError(
                f"{before.path} was scored by version {version} of the rules, {after.path} by "
                f"version {sample.scoring_version}: `rescore` the older one, and compare with "
                "what it writes"
            )
    suites = [results.settings.get("suite") for results in (before, after)]
    if suites[0] != suites[1]:
        suite_before, suite_after = (
            "no suite" if suite is None else shown(suite) for suite in suites
        )
        raise FixableError(
            f"{before.path} was made on {suite_before}, {after.path} on {suite_after}: evaluate "
            "both on one suite"
        )


def shown(value: Any) -> str:
    """Return a setting's value as JSON, shortened."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
