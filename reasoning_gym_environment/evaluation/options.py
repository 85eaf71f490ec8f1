"""The options of an evaluation, for the command line, a file and Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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


class Caller(NamedTuple):
    """Who evaluates, for what messages advise.

    Attributes:
        call: what is to be repeated.
        folder_option: the option that sets the folder of the results.
    """

    call: str
    folder_option: str


COMMAND = Caller("the command", "--env.data_dir_to_save_evals")
PYTHON = Caller("the call", "folder")


class Price(NamedTuple):
    """Dollars per million tokens."""

    prompt: float
    completion: float

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the dollars that some tokens cost.

        Example:
            >>> Price(0.5, 2.0).cost(1_000_000, 500_000)
            1.5
        """
        dollars = self.prompt * prompt_tokens + self.completion * completion_tokens
        return dollars / 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class AmongModels:
    """That a model is one of several, which are asked the same one after another.

    Attributes:
        folder: of the results of all, with a folder for each.
        prices: of all.
    """

    folder: Path
    prices: Sequence[Price | None]


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
