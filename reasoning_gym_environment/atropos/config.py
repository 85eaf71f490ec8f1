"""The settings as the flat configurations that Atropos reads."""

from __future__ import annotations

from pathlib import Path

from atroposlib.envs.base import APIServerConfig, BaseEnvConfig, EvalHandlingEnum
from pydantic import Field

from ..evaluation.run import DECISIVE, EvaluationSettings
from ..inference.prompts import resolve_system_prompt
from ..problems.suites import load_suite
from ..scoring.grading import ScoringSettings
from ..settings import EnvironmentSettings, ServerSettings, settings_of
from .servers import chat_template_text


class ReasoningGymEnvConfig(EnvironmentSettings, BaseEnvConfig):
    """Atropos's own settings and those of this environment.

    Raises:
        pydantic.ValidationError: a value is out of range or contradicts another, or a name is
            unknown.
    """

    eval_handling: EvalHandlingEnum = Field(
        default=EvalHandlingEnum.STOP_TRAIN,
        description=EnvironmentSettings.model_fields["eval_handling"].description,
    )


class ServerConfig(ServerSettings, APIServerConfig):
    """An inference server's settings; printing them hides the API key."""


def evaluation_settings(
    config: ReasoningGymEnvConfig, *, model: str, run_id: str
) -> EvaluationSettings:
    """Return the settings of evaluations; `run_id` names the results' folder if none is set."""
    options, renamed = config.model_dump(mode="json"), config.renamed
    decisive = {name: options[renamed.get(name, name)] for name in DECISIVE}
    folder = config.data_dir_to_save_evals or f"{config.data_dumps_dir}/evaluation_{run_id}"
    return settings_of(
        EvaluationSettings,
        config,
        decisive={
            **decisive,
            "system_prompt": resolve_system_prompt(config.system_prompt),
            "chat_template": chat_template_text(config.chat_template),
        },
        folder=Path(folder),
        model=model,
        suite=load_suite(config.eval_suite) if config.eval_suite else None,
        scoring=settings_of(ScoringSettings, config),
    )
