"""Filters of stored rollouts, and a rollout as text for the terminal."""

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
EXCERPT = 300
"""Characters shown of the beginning and of the end of a long thought."""

_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
_CONDITION = re.compile(r"\s*(<=|>=|<|>|=)\s*(\d+(?:\.\d*)?|\.\d+)\s*")


def parse_condition(text: str) -> Callable[[float], bool]:
    """Return the test that `<0.5`, `>=1` or `=0` stands for; raises ValueError on other text.

    Example:
        >>> parse_condition("<0.5")(0.25)
        True
    """
    found = _CONDITION.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} must be a comparison such as '<0.5', '>=1' or '=0'")
    compare, bound = _COMPARISONS[found[1]], float(found[2])
    return lambda score: bool(compare(score, bound))


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutFilter:
    """Conditions on rollouts.

    Attributes:
        tasks, statuses: accepted ones; empty accepts all.
        score: test of the reward; None accepts any.
    """

    tasks: Collection[str] = ()
    statuses: Collection[Status] = ()
    score: Callable[[float], bool] | None = None

    def matches(self, task: str, rollout: StoredRollout) -> bool:
        return (
            (not self.tasks or task in self.tasks)
            and (not self.statuses or rollout.status in self.statuses)
            and (self.score is None or self.score(rollout.score))
        )


def render_rollout(group: StoredGroup, number: int, *, full: bool) -> str:
    """Return a rollout as text that is safe to print.

    Args:
        number: of the rollout in its group, from 0.
        full: include the whole thought and the system prompt.
    """
    rollout = group.rollouts[number]
    thought, reply = split_thought(rollout.text)
    system = [m["content"] for m in rollout.conversation if m["role"] == "system"]
    parts = [
        *([("system", text) for text in system] if full else []),
        ("question", rollout.question),
        ("thought", thought if full else abbreviate(thought)),
        ("reply", reply),
        ("answer", "(none)" if rollout.answer is None else rollout.answer),
        ("oracle", "(none)" if group.oracle is None else group.oracle),
        ("status", ": ".join(filter(None, (rollout.status.value, rollout.detail)))),
        ("reward", explain_reward(rollout, group.scoring)),
        (
            "tokens",
            f"{rollout.completion_tokens:,} written, {rollout.tokens:,} with the prompt; "
            f"ended by {rollout.finish_reason}",
        ),
    ]
    sections = [_section(name, text) for name, text in parts if text.strip()]
    return escape_control_characters("\n".join([_title(group, number), *sections]))


def _title(group: StoredGroup, number: int) -> str:
    """Return a rule with the task, the recipe and the rollout's number."""
    recipe = group.recipe
    level = "" if recipe.level is None else f", level {recipe.level:g}"
    parameters = f", {json.dumps(recipe.parameters)}" if recipe.parameters else ""
    name = f"{recipe.task} (seed {recipe.seed}{level}{parameters})"
    return f"── {name}, rollout {number + 1} of {len(group.rollouts)} ".ljust(WIDTH, "─")


def _section(name: str, text: str) -> str:
    """Return the text indented beside its name."""
    margin = " " * 10
    return f"{name:<10}" + indent(text.strip("\n"), margin).removeprefix(margin)


def abbreviate(text: str) -> str:
    """Replace the middle of a long text with a note.

    Example:
        >>> len(abbreviate("x" * 10_000)) < 1000
        True
    """
    omitted = len(text) - 2 * EXCERPT
    if omitted <= EXCERPT:
        return text
    note = f"[… {omitted:,} of {len(text):,} characters omitted; --full shows them …]"
    return f"{text[:EXCERPT].rstrip()}\n{note}\n{text[-EXCERPT:].lstrip()}"


def explain_reward(rollout: StoredRollout, scoring: Mapping[str, object]) -> str:
    """Return how the reward was calculated.

    Args:
        scoring: the settings it was scored with, as far as known.

    Example:
        >>> rollout = StoredRollout(conversation=[], score=0.5, answer="4", status=Status.SOLVED,
        ...     detail="", raw_score=1.0, raw_form_score=1.0, tagged_form_score=None,
        ...     length_factor=0.5, verify_seconds=0.1, finish_reason="stop", tokens=9,
        ...     completion_tokens=4)
        >>> explain_reward(rollout, {"score_mode": "binary"})
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
