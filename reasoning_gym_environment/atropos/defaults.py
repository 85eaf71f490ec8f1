"""What the commands start from."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from atroposlib.envs.base import APIServerConfig, EvalHandlingEnum
from pydantic import Field

from ..config import ReasoningGymEnvConfig

DEFAULT_MODEL = "NousResearch/DeepHermes-3-Llama-3-8B-Preview"

COMMAND_DEFAULTS: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "process": {
            "ensure_scores_are_not_same": False,
            "include_messages": True,
            "dump_all_rollouts": True,
        }
    }
)
"""By command, where it starts from something else."""


class ServerConfig(APIServerConfig):
    """An inference server's settings, which don't show its key when they are printed."""

    api_key: str | None = Field(default="", repr=False, description="API key for the server.")


def default_config() -> ReasoningGymEnvConfig:
    """What the command line starts from."""
    return ReasoningGymEnvConfig(
        tokenizer_name=DEFAULT_MODEL,
        group_size=8,
        max_token_length=8192,
        total_steps=250,
        batch_size=1024,
        steps_per_eval=25,
        wandb_name="reasoning_gym_think",
        eval_handling=EvalHandlingEnum.NONE,
        num_rollouts_per_group_for_logging=4,
        num_rollouts_to_keep=50,
    )


def default_server() -> ServerConfig:
    """One local server, where Atropos's launch scripts put the first."""
    return ServerConfig(
        model_name=DEFAULT_MODEL,
        base_url="http://localhost:9004/v1",
        api_key="x",
        num_requests_for_eval=256,
    )
