"""`compare`: two evaluation results, paired by item."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import FixableError
from ..evaluation.comparison import compare, comparison_table
from ..evaluation.store import EvaluationResults, read_results
from ..tasks.recipes import LIBRARY
from ..util.text import escape_control_characters

_SHOWN = 60


def main(arguments: Sequence[str]) -> int:
    """Print what changed between two evaluations."""
    parser = ArgumentParser(
        prog="reasoning-gym-environment compare",
        description="Compare two evaluations, paired by item.",
    )
    for name in ("before", "after"):
        parser.add_argument(name, type=Path, help="folder of an evaluation, or its samples file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    before, after = read_results(options.before), read_results(options.after)
    settings = before.differing(after)
    versions = {"before": before.library_versions, "after": after.library_versions}
    comparison = compare(before.samples, after.samples)
    if comparison is None:
        raise FixableError(escape_control_characters(nothing_in_common(before, after)))
    if options.json:
        about = {"settings": settings, "made_with": versions}
        print(json.dumps({**about, **comparison.to_json()}, indent=2))
        return 0
    lines = [f"{name}: {shown(one)} -> {shown(other)}" for name, (one, other) in settings.items()]
    if versions["before"] != versions["after"]:
        one, other = (", ".join(found) for found in versions.values())
        lines.append(
            f"The items were made with {LIBRARY} {one} before and {other} after: items whose "
            "question differs are excluded, answers and verdicts may differ"
        )
    print(escape_control_characters("\n".join([*lines, comparison_table(comparison)])))
    return 0


def nothing_in_common(before: EvaluationResults, after: EvaluationResults) -> str:
    """Explain why no item can be compared."""
    reasons = [f"{n} ({shown(a)}, {shown(b)})" for n, (a, b) in before.differing(after).items()]
    if not before.tasks & after.tasks:
        reasons = ["all tasks"]
    differs = ", ".join(reasons) or "the questions, or which items are scored"
    return f"{before.path} and {after.path} have no scored item in common; they differ in {differs}"


def shown(value: Any) -> str:
    """Return a setting's value as JSON, shortened."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
