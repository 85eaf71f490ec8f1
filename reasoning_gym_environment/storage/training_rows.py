"""Makes the rows that training libraries read of stored rollouts.

The layouts are TRL's conversational language modeling and preference formats, which Axolotl's
`chat_template` strategies read too; and one row a rollout with all that is stored of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

from .rows import StoredGroup, StoredRollout, recipe_key, stable_json

ORIGIN = MappingProxyType({"task": "text", "recipe": "json"})
SFT_COLUMNS = MappingProxyType({"messages": "messages", **ORIGIN, "score": "number"})
DPO_COLUMNS = MappingProxyType(
    {
        "prompt": "messages",
        "chosen": "messages",
        "rejected": "messages",
        **ORIGIN,
        "chosen_score": "number",
        "rejected_score": "number",
    }
)
RECORD_COLUMNS = MappingProxyType(
    {
        "item_id": "text",
        "rollout": "integer",
        "conversation": "messages",
        "score": "number",
        "answer": "text",
        "oracle": "text",
        "status": "text",
        "detail": "text",
        "raw_score": "number",
        "raw_form_score": "number",
        "tagged_form_score": "number",
        "length_factor": "number",
        "finish_reason": "text",
        "tokens": "integer",
        "completion_tokens": "integer",
        "verify_seconds": "number",
        "recipe": "json",
        "difficulty": "number",
        "time": "text",
        "run": "text",
        "replica": "text",
        "schema_version": "integer",
        "library_versions": "json",
        "scoring": "json",
        "other": "json",
    }
)
"""Column to its kind. `json` is text: what it holds differs from task to task. `other` takes
what a row carries beyond these columns."""


class Item(NamedTuple):
    """A row for training.

    Attributes:
        asked: task and question. Different recipes can ask the same, so a split goes by this.
        identity: recipe and text: rows of the same identity are duplicates.
    """

    asked: str
    identity: str
    row: dict[str, Any]


def sft_rows(group: StoredGroup, *, min_score: float | None = None) -> Iterator[Item]:
    """Make one row for each good completion.

    Args:
        min_score: least reward of a good one; None asks for the status `solved`.
    """
    for rollout in examples(group):
        if rollout.solved if min_score is None else rollout.score >= min_score:
            row = {"messages": rollout.conversation, **origin(group), "score": rollout.score}
            yield item(group, row, rollout.text)


def dpo_rows(group: StoredGroup) -> Iterator[Item]:
    """Pair the best solved completion with the worst that is not; nothing without both.

    Among equals the first one counts.
    """
    right = [rollout for rollout in examples(group) if rollout.solved]
    wrong = [rollout for rollout in examples(group) if not rollout.solved]
    if not right or not wrong:
        return
    best = max(right, key=lambda rollout: rollout.score)
    worst = min(wrong, key=lambda rollout: rollout.score)
    row = {
        "prompt": best.prompt,
        "chosen": best.conversation[-1:],
        "rejected": worst.conversation[-1:],
        **origin(group),
        "chosen_score": best.score,
        "rejected_score": worst.score,
    }
    yield item(group, row, best.text, worst.text)


def record_rows(group: StoredGroup) -> Iterator[Item]:
    """Make one row for each rollout, with all that is stored of it and of its group."""
    shared = group.to_json()
    for number, (rollout, own) in enumerate(
        zip(group.rollouts, shared.pop("rollouts"), strict=True)
    ):
        everything = {**shared, "rollout": number, **own}
        other = {key: everything[key] for key in everything.keys() - RECORD_COLUMNS.keys()}
        values = {**everything, "other": other}
        row = {name: cell(values.get(name), kind) for name, kind in RECORD_COLUMNS.items()}
        yield item(group, row, rollout.text)


def examples(group: StoredGroup) -> Iterator[StoredRollout]:
    """Choose the rollouts that can teach: not those that are unscored or cut off."""
    return (rollout for rollout in group.scored if not rollout.truncated)


def origin(group: StoredGroup) -> dict[str, str]:
    """Say where a row for training comes from."""
    return {"task": group.task, "recipe": recipe_key(group.recipe)}


def item(group: StoredGroup, row: dict[str, Any], *texts: str) -> Item:
    """Give a row what tells it from others."""
    asked = stable_json([group.task, group.question])
    identity = stable_json([group.recipe.to_json(), *texts])
    return Item(asked=asked, identity=identity, row=row)


def cell(value: Any, kind: str) -> Any:
    """Convert a value to what its column holds; None stays None."""
    if value is None or kind not in ("json", "text"):
        return value
    return stable_json(value) if kind == "json" else str(value)
