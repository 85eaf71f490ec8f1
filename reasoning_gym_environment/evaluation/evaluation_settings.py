"""The settings of an evaluation, and which of them determine its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..inference.dialects import SamplingParams
from ..problems.suites import Suite
from ..scoring.grading import ScoringSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSettings:
    """What is evaluated, and where the results go; fields are named as the options.

    Attributes:
        system_prompt, chat_template: their texts.
        max_eval_workers: concurrent completions; a single item may exceed it.
        suite: the items; None plans them from the settings above.
        limit: the most items, spread over the planned ones.
    """

    eval_attempts: int
    eval_difficulties: Sequence[float]
    eval_seed: int
    eval_step: int | None
    eval_temperature: float
    generation_timeout: float
    max_reasoning_tokens: int | None
    num_eval_samples_per_task: int
    reasoning_effort: str | None
    skip_faulty_items: bool
    thinking_mode: bool
    tokenizer_name: str
    system_prompt: str
    chat_template: str | None
    chat_template_kwargs: Mapping[str, Any]
    thought_markers: str
    scoring: ScoringSettings
    max_eval_workers: int
    folder: Path
    model: str
    suite: Suite | None = None
    limit: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the options that determine the results."""
        without_effect = (
            "eval_step",
            "scoring",
            "max_eval_workers",
            "folder",
            "model",
            "suite",
        )
        names = [
            field.name for field in fields(self) if field.name not in without_effect
        ]
        return {
            **self.scoring.to_json(),
            **{name: getattr(self, name) for name in names},
        }

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(
            temperature=self.eval_temperature, top_p=1.0, split="eval"
        )
