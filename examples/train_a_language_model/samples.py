"""Answers of the model to the same questions at each stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from results import held_out

from reasoning_gym_environment.storage.rows import StoredGroup, StoredRollout

ITEMS = 3


def samples(evaluations: Mapping[str, Path]) -> str:
    """Return all rollouts of the first held-out item of a few tasks, by stage."""
    stages = {
        name: {sample.task: sample for sample in reversed(held_out(folder).samples)}
        for name, folder in evaluations.items()
    }
    tasks = sorted(set.intersection(*map(set, stages.values())))[:ITEMS]
    texts = [
        lines({stage: of_task[task] for stage, of_task in stages.items()}, task)
        for task in tasks
    ]
    return "\n\n".join(texts)


def lines(stages: Mapping[str, StoredGroup], task: str) -> str:
    """Return an item's question and right answer, and a line for each stage."""
    [question] = {sample.question for sample in stages.values()}
    [oracle] = {sample.oracle for sample in stages.values()}
    heading = f"{task}: {question.strip()!r}, right is {oracle}"
    answers = [f"  {stage:12}{answered(sample)}" for stage, sample in stages.items()]
    return "\n".join([heading, *answers])


def answered(sample: StoredGroup) -> str:
    """Return all rollouts as text, with a mark on solved ones."""
    return "   ".join(map(marked, sample.rollouts))


def marked(rollout: StoredRollout) -> str:
    return f"{'+' if rollout.solved else '-'} {rollout.text!r}"
