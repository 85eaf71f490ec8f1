"""The settings of an evaluation, and which of them determine its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..inference.dialects import SamplingParams
from ..problems.split import SPLIT_RULE
from ..problems.suites import Suite
from ..scoring.grading import ScoringSettings
from .options import COMMAND, AmongModels, Caller, EvaluationOptions, Price


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSettings:
    """What is evaluated, and where the results go.

    Attributes:
        conditions: other options that determine the results, by name; `system_prompt` and
            `chat_template` are their texts.
        skip_faulty_items: whether items with known faults are left out.
        max_eval_workers: concurrent completions; a single item may exceed it.
        folder: of the results.
        suite: the items; None plans them from the options.
        limit: the most items, spread over the planned ones.
        price: of the model's tokens, for what the evaluation costs.
        among: the other models that are evaluated.
    """

    options: EvaluationOptions
    conditions: Mapping[str, Any]
    skip_faulty_items: bool
    scoring: ScoringSettings
    max_eval_workers: int
    folder: Path
    model: str
    suite: Suite | None = None
    limit: int | None = None
    caller: Caller = COMMAND
    price: Price | None = None
    among: AmongModels | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the options that determine the results."""
        options = {
            name: getattr(self.options, name)
            for name in EvaluationOptions.model_fields
            if name != "eval_step"  # which stands beside the results
        }
        # The items of a suite are in its file.
        rule = {"split_rule": SPLIT_RULE} if self.suite is None else {}
        return {
            **self.scoring.to_json(),
            **options,
            **self.conditions,
            "skip_faulty_items": self.skip_faulty_items,
            "limit": self.limit,
            **rule,
        }

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(
            temperature=self.options.eval_temperature, top_p=1.0, split="eval"
        )
