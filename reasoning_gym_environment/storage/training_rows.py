"""Stored rollouts as the rows that training libraries read.

The layouts are TRL's conversational language modeling and preference formats, which Axolotl's
`chat_template` strategies read too; and one row a rollout with all that is stored of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..records import Status
from .stored import completion, prompt, question

Row = Mapping[str, Any]

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


def sft_rows(group: Row, *, min_score: float | None = None) -> Iterator[Item]:
    """One row for each good completion.

    Args:
        min_score: least reward of a good one; None asks for the status `solved`.
    """
    for rollout in examples(group):
        if solved(rollout) if min_score is None else rollout["score"] >= min_score:
            row = {"messages": rollout["conversation"], **origin(group), "score": rollout["score"]}
            yield item(group, row, completion(rollout))


def dpo_rows(group: Row) -> Iterator[Item]:
    """The best solved completion against the worst that is not; nothing without both.

    Among equals the first one counts.
    """
    right = [rollout for rollout in examples(group) if solved(rollout)]
    wrong = [rollout for rollout in examples(group) if not solved(rollout)]
    if not right or not wrong:
        return
    best = max(right, key=lambda rollout: float(rollout["score"]))
    worst = min(wrong, key=lambda rollout: float(rollout["score"]))
    row = {
        "prompt": prompt(best),
        "chosen": best["conversation"][-1:],
        "rejected": worst["conversation"][-1:],
        **origin(group),
        "chosen_score": best["score"],
        "rejected_score": worst["score"],
    }
    yield item(group, row, completion(best), completion(worst))


def record_rows(group: Row) -> Iterator[Item]:
    """One row for each rollout, with all that is stored of it and of its group."""
    shared = {key: value for key, value in group.items() if key != "rollouts"}
    for number, rollout in enumerate(group["rollouts"]):
        everything = {**shared, "rollout": number, **rollout}
        other = {key: everything[key] for key in everything.keys() - RECORD_COLUMNS.keys()}
        values = {**everything, "other": other}
        row = {name: cell(values.get(name), kind) for name, kind in RECORD_COLUMNS.items()}
        yield item(group, row, completion(rollout))


def examples(group: Row) -> Iterator[Row]:
    """The rollouts that can teach: not those that are unscored or end where no text ends."""
    for rollout in group["rollouts"]:
        if rollout["status"] != Status.UNSCORED and rollout["finish_reason"] != "length":
            yield rollout


def solved(rollout: Row) -> bool:
    return bool(rollout["status"] == Status.SOLVED)


def origin(group: Row) -> dict[str, str]:
    """What says where a row for training comes from."""
    return {"task": group["item_id"], "recipe": as_json(group["recipe"])}


def item(group: Row, row: dict[str, Any], *texts: str) -> Item:
    """A row with what tells it from others."""
    asked = as_json([group["item_id"], question(group["rollouts"][0])])
    return Item(asked=asked, identity=as_json([group["recipe"], *texts]), row=row)


def cell(value: Any, kind: str) -> Any:
    """A value as its column holds it; None stays None."""
    if value is None or kind not in ("json", "text"):
        return value
    return as_json(value) if kind == "json" else str(value)


def as_json(value: Any) -> str:
    """The same text for equal values."""
    return json.dumps(value, sort_keys=True)
