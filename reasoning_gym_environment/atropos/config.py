"""The settings as the flat configurations that Atropos reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atroposlib.envs.base import APIServerConfig, BaseEnvConfig, EvalHandlingEnum
from pydantic import Field

from ..evaluation.run import EvaluationSettings
from ..inference.prompts import resolve_system_prompt
from ..scoring.grading import ScoringSettings
from ..settings import EnvironmentSettings, ServerSettings, settings_of
from .servers import chat_template_text

_EVAL_HANDLING = EnvironmentSettings.model_fields["eval_handling"]


class ReasoningGymEnvConfig(EnvironmentSettings, BaseEnvConfig):
    """Atropos's own settings and those of this environment.

    Raises:
        pydantic.ValidationError: a value is out of range or contradicts another, or a name is
            unknown.
    """

    eval_handling: EvalHandlingEnum = Field(
        default=EvalHandlingEnum(_EVAL_HANDLING.default),
        description=_EVAL_HANDLING.description,
        json_schema_extra=_EVAL_HANDLING.json_schema_extra,
    )


class ServerConfig(ServerSettings, APIServerConfig):
    """An inference server's settings; printing them hides the API key."""


def as_config(env: Any, config_class: Any) -> Any:
    """Return settings, which are valid already, as Atropos's configuration."""
    if isinstance(env, config_class):
        return env
    values = {**dict(env), "eval_handling": EvalHandlingEnum(env.eval_handling)}
    return config_class.model_construct(**values)


def evaluation_settings(
    config: ReasoningGymEnvConfig, *, model: str, run_id: str
) -> EvaluationSettings:
    """Return the settings of evaluations; `run_id` names the results' folder if none is set."""
    folder = config.data_dir_to_save_evals or f"{config.data_dumps_dir}/evaluation_{run_id}"
    return settings_of(
        EvaluationSettings,
        config,
        system_prompt=resolve_system_prompt(config.system_prompt),
        chat_template=chat_template_text(config.chat_template),
        folder=Path(folder),
        model=model,
        scoring=settings_of(ScoringSettings, config),
    )
