"""The start of a run's parts: worker processes, inference servers, the evaluation set."""

from __future__ import annotations

import gc
import logging

from ..errors import ConfigurationError, Mistakes
from ..problems.split import known_small_levels
from ..settings import require_known_names
from ..util.logs import SecretRedactor, ensure_handler
from ..util.outages import require_reachable
from .config import BASE_CLASS_LOGGER
from .hooks import Patience
from .parts import Parts

logger = logging.getLogger(__name__)


async def start_parts(
    parts: Parts, patience: Patience, *, run_id: str, length_limit: int
) -> None:
    """Check the servers, start the worker processes, plan the evaluation set.

    Args:
        length_limit: tokens of prompt and completion.

    Raises:
        UnreachableError: no inference server answers or, in `serve`, the Atropos API does not.
        ConfigurationError: a server rejects requests or lacks what the configuration requires.
    """
    ensure_handler(SecretRedactor(parts.inference.keys), BASE_CLASS_LOGGER)
    _require_tokens_and_signal(parts)
    settings = parts.settings
    config = settings.env
    mistakes = Mistakes()
    require_known_names(config, mistakes)
    mistakes.require_none()
    if not settings.serves:
        parts.inference.give_up_after(patience.failing_seconds)
    if settings.command == "serve":
        await require_reachable(
            [config.rollout_server_url],
            what="the Atropos API",
            hint="start it with `run-api`, or set --env.rollout_server_url",
            seconds=patience.reach_seconds,
        )
        await parts.trainer.client.request("GET", "/info")  # another server may listen
    trains = settings.command != "evaluate"
    evaluates = not trains or (settings.serves and config.steps_per_eval > 0)
    evaluation = parts.evaluation
    await parts.inference.require_servers(
        patience.reach_seconds,
        length_limit=length_limit,
        sampling=parts.sampling if trains else None,
        evaluation=evaluation.settings.sampling if evaluates else None,
        serves=settings.serves,
    )
    if (
        not parts.problems.selection.categories
    ):  # else they run since an attempt that failed
        logger.info("Starting the task processes")
        await parts.pool.start()
        await parts.problems.prepare(with_ladders=bool(config.eval_difficulties))
    selected = parts.problems.selection
    parts.statistics.use_categories(selected.categories)
    split = parts.split
    make = split.make if settings.suite is None else split.make_as_it_is
    evaluation.prepare(make, selected.categories, selected.ladders)
    gc.collect()
    gc.freeze()  # collecting all that Atropos imports stalls the loop for 80 ms
    items = f", {len(evaluation.set)} evaluation items" if evaluates else ""
    logger.info("Set up: %d tasks%s, run %s", len(selected.categories), items, run_id)
    small_levels = known_small_levels(selected.categories)
    if small_levels:
        logger.info(
            "Few questions, which training and evaluation both ask: %s",
            ", ".join(small_levels),
        )


def _require_tokens_and_signal(parts: Parts) -> None:
    """Raise ConfigurationError for what no group could be sent or written with."""
    command = parts.settings.command
    why_tokenizer = ""
    if command == "serve":
        why_tokenizer = "serve trains on tokens"
    elif command == "process" and parts.groups_file is not None:
        why_tokenizer = "data_path_to_save_groups stores tokens"
    if why_tokenizer and parts.tokenizer is None:
        raise ConfigurationError(
            f"{why_tokenizer}, so it needs the model's tokenizer: set --env.tokenizer_name"
        )
    if command in ("serve", "process"):
        parts.settings.env.require_groups_that_differ()
