"""Chooses stored rollouts, and writes one as people read it at a terminal."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from textwrap import indent

from ..records import Status
from ..scoring.extraction import split_thought
from ..util.text import escape_control_characters
from .rows import StoredGroup, StoredRollout

WIDTH = 100
FOLDED = 300
"""Characters of a thought that are shown at its beginning and at its end."""

_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
_CONDITION = re.compile(r"\s*(<=|>=|<|>|=)\s*(\d+(?:\.\d*)?|\.\d+)\s*")


def parse_condition(text: str) -> Callable[[float], bool]:
    """Make a test of a score, from `<0.5`, `>=1` or `=0`; raises ValueError on anything else.

    Example:
        >>> parse_condition("<0.5")(0.25)
        True
    """
    found = _CONDITION.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no comparison such as '<0.5', '>=1' or '=0'")
    compare, bound = _COMPARISONS[found[1]], float(found[2])
    return lambda score: bool(compare(score, bound))


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutFilter:
    """Says which rollouts are wanted.

    Attributes:
        tasks, statuses: wanted ones; empty is all.
        score: a test of the reward; None is any.
    """

    tasks: Collection[str] = ()
    statuses: Collection[Status] = ()
    score: Callable[[float], bool] | None = None

    def wants(self, task: str, rollout: StoredRollout) -> bool:
        return (
            (not self.tasks or task in self.tasks)
            and (not self.statuses or rollout.status in self.statuses)
            and (self.score is None or self.score(rollout.score))
        )


def render_rollout(group: StoredGroup, number: int, *, full: bool) -> str:
    """Write the rollout of that number, from 0, of a group; safe to print.

    Args:
        full: show the whole thought and the system prompt.
    """
    rollout = group.rollouts[number]
    thought, reply = split_thought(rollout.text)
    system = [m["content"] for m in rollout.conversation if m["role"] == "system"]
    parts = [
        *([("system", text) for text in system] if full else []),
        ("question", rollout.question),
        ("thought", thought if full else fold(thought)),
        ("reply", reply),
        ("answer", _or_none(rollout.answer)),
        ("oracle", _or_none(group.oracle)),
        ("status", ": ".join(filter(None, (rollout.status.value, rollout.detail)))),
        ("reward", breakdown(rollout, group.scoring)),
        ("tokens", lengths(rollout)),
    ]
    sections = [_section(name, text) for name, text in parts if text.strip()]
    return escape_control_characters("\n".join([title(group, number), *sections]))


def title(group: StoredGroup, number: int) -> str:
    """Draw a rule with the rollout's place: task, recipe, number."""
    recipe = group.recipe
    level = "" if recipe.level is None else f", level {recipe.level:g}"
    parameters = f", {json.dumps(recipe.parameters)}" if recipe.parameters else ""
    place = f"{recipe.task} (seed {recipe.seed}{level}{parameters})"
    return f"── {place}, rollout {number + 1} of {len(group.rollouts)} ".ljust(WIDTH, "─")


def fold(text: str) -> str:
    """Leave out the middle of a long text.

    Example:
        >>> len(fold("x" * 10_000)) < 1000
        True
    """
    left_out = len(text) - 2 * FOLDED
    if left_out <= FOLDED:
        return text
    note = f"[… {left_out:,} of {len(text):,} characters; --full shows them …]"
    return f"{text[:FOLDED].rstrip()}\n{note}\n{text[-FOLDED:].lstrip()}"


def breakdown(rollout: StoredRollout, scoring: Mapping[str, object]) -> str:
    """Say how the reward came about.

    Args:
        scoring: the settings it was scored under, as far as they are known.

    Example:
        >>> rollout = StoredRollout.from_json({"conversation": [], "answer": "4",
        ...     "status": "solved", "detail": "", "score": 0.5, "raw_score": 1.0,
        ...     "raw_form_score": 1.0, "tagged_form_score": None, "length_factor": 0.5,
        ...     "finish_reason": "stop", "tokens": 9, "completion_tokens": 4})
        >>> breakdown(rollout, {"score_mode": "binary"})
        '0.5: verifier 1 (bare 1, tagged not tried), mode binary, length factor 0.5'
    """
    raw, bare, tagged = (
        None if score is None else f"{score:.4g}"
        for score in (rollout.raw_score, rollout.raw_form_score, rollout.tagged_form_score)
    )
    verifier = f"verifier {raw}" if raw else "unscored"
    if bare or tagged:
        verifier += f" (bare {bare or 'not tried'}, tagged {tagged or 'not tried'})"
    mode = f", mode {scoring['score_mode']}" if "score_mode" in scoring else ""
    factor = f"length factor {rollout.length_factor:.4g}"
    return f"{rollout.score:.4g}: {verifier}{mode}, {factor}"


def lengths(rollout: StoredRollout) -> str:
    """Say how many tokens there are, and how the completion ended."""
    return (
        f"{rollout.completion_tokens:,} written, {rollout.tokens:,} with the prompt; "
        f"ended by {rollout.finish_reason}"
    )


def _or_none(text: str | None) -> str:
    return "(none)" if text is None else text


def _section(name: str, text: str) -> str:
    """Put the name in a column of its own, the text indented beside it."""
    margin = " " * 10
    return f"{name:<10}" + indent(text.strip("\n"), margin).removeprefix(margin)
