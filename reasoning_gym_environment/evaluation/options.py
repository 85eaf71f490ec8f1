"""The options of an evaluation, for the command line, a file and Python."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from ..problems.options import option, split_names
from ..problems.seeds import EVAL_SEED
from ..util.command_line import Section


def parse_difficulties(value: Any) -> list[float]:
    """Read difficulties from a number, a list or text, and sort them.

    Example:
        >>> parse_difficulties("0.75, 0.25")
        [0.25, 0.75]
    """
    parts = split_names(value) if isinstance(value, str) else value
    if not isinstance(parts, list):
        parts = [parts]
    try:
        difficulties = sorted({float(part) for part in parts})
    except (TypeError, ValueError):
        difficulties = [-1.0]  # refused below, with what was given
    if not all(0 <= difficulty <= 1 for difficulty in difficulties):
        raise ValueError(f"must be numbers from 0 to 1, got {value!r}")
    return difficulties


Difficulties = Annotated[list[float], BeforeValidator(parse_difficulties)]


class EvaluationOptions(Section):
    """How many items are evaluated, at which difficulties, and how they are sampled."""

    num_eval_samples_per_task: int = option(
        5,
        "Evaluation items of each task.",
        ge=1,
        heading="Evaluation",
    )
    eval_attempts: int = option(
        1, "Completions of each evaluation item: the k of pass@k.", ge=1
    )
    eval_difficulties: Difficulties = option(
        [],
        "More difficulties to evaluate, from 0 to 1, separated by commas; each adds as many items "
        "of every task with levels.",
    )
    eval_seed: int = option(
        EVAL_SEED, "Seed of the evaluation set; no other affects it."
    )
    eval_step: int | None = option(
        None, "Trainer's step of the evaluated checkpoint, stored in its rows.", ge=0
    )
    eval_temperature: float = option(0.1, "Sampling temperature in evaluation.", ge=0)
