"""Whether evaluations can be compared: the items of one rule, scored by one rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import FixableError
from ..records import ATROPOS_SOLVED_SCORE
from ..util.values import escape_control_characters
from .store import EvaluationResults


def nothing_in_common(evaluations: Sequence[EvaluationResults]) -> FixableError:
    """Return the error of evaluations without an item that all have scored."""
    first, *candidates = evaluations
    for candidate in candidates:
        if _scored_keys(first).isdisjoint(_scored_keys(candidate)):
            return _nothing_in_common_of_two(first, candidate)
    paths = ", ".join(str(results.path) for results in evaluations)
    return FixableError(
        f"no item is scored in all of {paths}: complete them, or compare fewer"
    )


def _scored_keys(results: EvaluationResults) -> set[str]:
    return {sample.item_key for sample in results.samples if sample.scored}


def _nothing_in_common_of_two(
    before: EvaluationResults, after: EvaluationResults
) -> FixableError:
    reasons = [
        f"{name} ({shown(value_before)}, {shown(value_after)})"
        for name, (value_before, value_after) in before.differing(after).items()
    ]
    if {s.task for s in before.samples}.isdisjoint(s.task for s in after.samples):
        reasons = ["all tasks"]
    differs = ", ".join(reasons) or "the questions, or which items are scored"
    return FixableError(
        escape_control_characters(
            f"{before.path} and {after.path} have no scored item in common; they differ in "
            f"{differs}"
        )
    )


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
