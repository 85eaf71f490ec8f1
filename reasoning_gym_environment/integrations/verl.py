"""What verl loads by path: a reward function, a data set that a stream feeds, and an estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.tokenizer import normalize_token_ids

from ..errors import ConfigurationError
from ..inference.prompts import build_messages, resolve_system_prompt
from ..service.client import RewardClient, split_stream_url
from ..storage.export import verl_row
from ..tasks.recipes import read_recipe
from ..util.values import shorten
from .shared import after, chosen_answer_format, score_by_recipe
from .unscored import among_scored, reward_of

__all__ = ["ReasoningGymDataset", "compute_score"]

ESTIMATOR = "reasoning_gym_grpo"
"""GRPO without unscored completions, as `algorithm.adv_estimator`."""

MAX_TOO_LONG = 100
"""Give up after this many prompts in a row that are too long."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,
    *,
    url: str | None = None,
    reply_after: str | None = None,
    **_: Any,
) -> dict[str, Any]:
    """Score a completion, as `reward.custom_reward_function`.

    Args:
        ground_truth: the recipe as JSON text.
        extra_info: of the row; `curriculum_url` is of the stream that learns the score, whose
            service scores.
        url: of a reward service, which all of verl's workers share; None scores in a gym of this
            process.
        reply_after: what a reply follows in texts without special tokens, such as
            "assistantfinal" of gpt-oss.

    Returns:
        `score` in [0, 1], `acc`, which is 1 for a solved problem, and the `status`. The score of
        an unscored completion is a 0 that the estimator ESTIMATOR leaves out.
    """
    info = {} if extra_info is None else extra_info
    if not isinstance(info, Mapping):
        raise ConfigurationError(
            f"extra_info of a row must be a mapping, got {shorten(info)}"
        )
    score = score_by_recipe(
        ground_truth,
        after(solution_str, reply_after),
        url=url,
        curriculum_url=info.get("curriculum_url"),
    )
    return {
        "score": reward_of(score),
        "acc": float(score.solved),
        "status": score.status.value,
    }


@register_adv_est(ESTIMATOR)
@among_scored
def estimate_grpo(*, config: Any, **group: Any) -> tuple[Any, Any]:
    """Return verl's own GRPO advantages."""
    is_scaled = config.get("norm_adv_by_std_in_grpo", True)
    advantages, returns = compute_grpo_outcome_advantage(
        **group, norm_adv_by_std_in_grpo=is_scaled
    )
    return advantages, returns


class StreamedRows:
    """The next problems of a reward service's stream as verl's rows, whatever their index.

    Problems whose prompt is too long are dropped.

    Args:
        url: see `split_stream_url`.
        settings: `options` that start the stream, and `system_prompt`.
    """

    def __init__(
        self,
        url: str,
        settings: Mapping[str, Any],
        tokenizer: Any,
        *,
        size: int,
        most_tokens: int,
    ) -> None:
        address, self._stream = split_stream_url(url)
        self._client = RewardClient(address)
        self._url = url
        self._options = settings.get("options")
        self._system_prompt = resolve_system_prompt(
            settings.get("system_prompt", "think"), chosen_answer_format()
        )
        self._tokenizer = tokenizer
        self._size = size
        self._most_tokens = most_tokens

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, _: int) -> dict[str, Any]:
        for _ in range(MAX_TOO_LONG):
            [problem] = self._client.problems(self._stream, 1, self._options)
            messages = build_messages(self._system_prompt, problem["question"])
            prompt = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True
            )
            if len(normalize_token_ids(prompt)) <= self._most_tokens:
                row = verl_row(read_recipe(problem["recipe"]), messages)
                row["extra_info"]["curriculum_url"] = self._url
                return row
            self._client.observe(
                self._stream,
                problem["recipe"],
                solved=0,
                attempts=0,
            )
        raise ConfigurationError(
            f"{MAX_TOO_LONG} prompts in a row have more than data.max_prompt_length "
            f"({self._most_tokens}) tokens: raise it, or choose other tasks"
        )


class ReasoningGymDataset(RLHFDataset):
    """A data set for `data.custom_cls`: a stream where its file is a stream's URL, else that file.

    The settings of the stream are `+data.reasoning_gym`: see `StreamedRows`. `compute_score` tells
    it the scores, so levels follow them.
    """

    def _download(self, use_origin_parquet: bool = False) -> None:
        if self._stream_url is None:
            super()._download(use_origin_parquet)

    def _read_files_and_tokenize(self) -> None:
        if self._stream_url is None:
            super()._read_files_and_tokenize()
            return
        if self.max_samples < 1:
            raise ConfigurationError(
                "a stream has no end: set data.train_max_samples to the problems of an epoch, "
                f"got {self.max_samples}"
            )
        if self.config.get("dataloader_num_workers", 0):
            raise ConfigurationError(
                "data.dataloader_num_workers must be 0 with a stream, as others draw ahead of the "
                f"curriculum, got {shorten(self.config.dataloader_num_workers)}"
            )
        self.dataframe = StreamedRows(
            self._stream_url,
            self._stream_settings(),
            self.tokenizer,
            size=self.max_samples,
            most_tokens=self.max_prompt_length,
        )

    def _stream_settings(self) -> dict[str, Any]:
        """Return the stream's settings, with verl's group size where its configuration is whole."""
        settings = OmegaConf.create(self.config.get("reasoning_gym") or {})
        try:
            of_verl = OmegaConf.select(self.config, "..actor_rollout_ref.rollout.n")
        except ConfigKeyError:  # a program of its user's made the section `data` alone
            of_verl = None
        if of_verl is not None and settings.get("options") is not None:
            group_size = settings.options.setdefault("group_size", of_verl)
            if group_size != of_verl:
                raise ConfigurationError(
                    f"data.reasoning_gym.options.group_size must be {of_verl}, as "
                    f"actor_rollout_ref.rollout.n, or unset, got {shorten(group_size)}"
                )
        container: dict[str, Any] = OmegaConf.to_container(settings)
        return container

    @property
    def _stream_url(self) -> str | None:
        file = str(self.original_data_files[0])
        return file if file.startswith(("http://", "https://")) else None
