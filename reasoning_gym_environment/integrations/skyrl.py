"""An environment for SkyRL-gym; importing this module registers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs import register
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from ..errors import ConfigurationError
from ..records import Status
from ..storage.export import SKYRL_ENVIRONMENT, skyrl_row
from ..util.values import shorten
from .shared import after, score_by_recipe
from .unscored import among_scored, reward_of

__all__ = ["ReasoningGymTextEnv", "among_scored", "skyrl_row"]


class ReasoningGymTextEnv(BaseTextEnv):
    """One question and one reply; the row's ground truth is its recipe.

    Args:
        extras: the row without its prompt; `curriculum_url` is of a stream that learns the score.
        url: of a reward service; None scores in a gym of this process.
        reply_after: what a reply follows in texts without special tokens, such as
            "assistantfinal" of gpt-oss.
    """

    def __init__(
        self,
        env_config: Any = None,
        extras: Mapping[str, Any] | None = None,
        url: str | None = None,
        reply_after: str | None = None,
    ) -> None:
        super().__init__()
        try:
            self._recipe = (extras or {})["reward_spec"]["ground_truth"]
        except (KeyError, TypeError):
            raise ConfigurationError(
                f"the row needs reward_spec.ground_truth, a recipe, got {shorten(extras)}: write "
                "rows with `reasoning-gym-environment problems --format skyrl`"
            ) from None
        self._urls = {
            "url": url,
            "curriculum_url": (extras or {}).get("curriculum_url"),
        }
        self._reply_after = reply_after
        self._status: Status | None = None

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Score the reply; the reward of an unscored one is a 0 that `among_scored` leaves out."""
        score = score_by_recipe(
            self._recipe, after(action, self._reply_after), **self._urls
        )
        self._status = score.status
        return BaseTextEnvStepOutput(
            observations=[],
            reward=reward_of(score),
            done=True,
            metadata=score.to_json(),
        )

    def get_metrics(self) -> dict[str, float]:
        """Return every status as 0 or 1, so that their means are shares."""
        return {status.value: float(status is self._status) for status in Status}


register(id=SKYRL_ENVIRONMENT, entry_point=f"{__name__}:{ReasoningGymTextEnv.__name__}")
