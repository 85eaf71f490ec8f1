"""The table of rollouts in wandb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import wandb

from ..records import Problem


class RolloutRow(NamedTuple):
    """One rollout, as the table shows it; the field names are its columns."""

    full_text: str
    score: float
    expected_answer: str | None
    task_name: str | None
    status: str


def rollout_rows(
    tokenizer: Any, scored_data: Mapping[str, Any], problem: Problem | None, *, keep: int
) -> list[RolloutRow]:
    """The first `keep` rollouts of a group that goes to the trainer; -1 keeps all."""
    count = len(scored_data["tokens"]) if keep == -1 else keep
    columns = (scored_data["tokens"], scored_data["scores"], scored_data["statuses"])
    return [
        RolloutRow(
            full_text=tokenizer.decode(tokens),
            score=score,
            expected_answer=problem.oracle if problem else None,
            task_name=problem.recipe.task if problem else None,
            status=status,
        )
        for tokens, score, status in list(zip(*columns, strict=True))[:count]
    ]


def rollout_table(groups: Sequence[Sequence[RolloutRow]]) -> wandb.Table:
    table = wandb.Table(columns=[*RolloutRow._fields])
    for row in (row for group in groups for row in group):
        table.add_data(*row)
    return table
