"""Evaluations in pairs: what `compare` finds of them, for the page to draw."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from ..evaluation.comparison import Comparison, compare_items
from .identity import EVALUATION
from .index import GroupIndex

EMBEDDED = 6
"""Evaluations of which a page without a server has all pairs."""

OTHER_RULES = "they count different scores as solved. Rescore the older one"
NOTHING_COMMON = "no item is scored in both"


def compare_pair(index: GroupIndex, before: str, after: str) -> dict[str, Any]:
    """Return the comparison of two evaluations, named by key, at each difficulty of both.

    Returns:
        `by_difficulty`, with "" for all together; without any, `refused` says why.
    """
    run_before = index.runs[before]
    run_after = index.runs[after]
    pair: dict[str, Any] = {"before": before, "after": after, "by_difficulty": {}}
    if run_before.rules != run_after.rules:
        return {**pair, "refused": OTHER_RULES}
    items_after = index.items(after)
    for label, items in index.items(before).items():
        comparison = compare_items(items, items_after.get(label, {}))
        if comparison is not None:
            pair["by_difficulty"][label] = _to_json(comparison)
    if not pair["by_difficulty"]:
        pair["refused"] = NOTHING_COMMON
    return pair


def _to_json(comparison: Comparison) -> dict[str, Any]:
    sentence = f"{comparison.verdict.capitalize()}. {comparison.excluded}"
    return {**comparison.to_json(), "said": sentence}


def embedded_pairs(index: GroupIndex) -> list[dict[str, Any]]:
    """Return the comparisons of the first evaluation and the last ones, ordered by step."""
    evaluations = [run for run in index.runs.values() if run.kind == EVALUATION]
    evaluations.sort(key=lambda run: run.to_json()["step"] or 0)
    chosen = evaluations[:1] + evaluations[1:][1 - EMBEDDED :]
    return [
        compare_pair(index, earlier.key, later.key)
        for earlier, later in combinations(chosen, 2)
    ]
