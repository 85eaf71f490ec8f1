"""Output beside the groups: the wandb run, the rollout table, files."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib.metadata import version
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import wandb
from atroposlib.frontend.jsonl2html import generate_html
from tqdm import tqdm
from wandb.sdk.mailbox import MailboxClosedError

from ..errors import FixableError
from ..inference.client import InferenceClient
from ..records import Problem
from ..rollouts.accounting import Statistics
from ..rollouts.progress import signal_line
from ..util.files import replacing
from ..util.log_throttle import THROTTLE, throttled
from .rows import trained_tokens

_WANDB_ERRORS = (OSError, MailboxClosedError, wandb.errors.Error)

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

VERSIONS = {
    name: version(name)
    for name in (
        "reasoning-gym-environment",
        "reasoning-gym",
        "atroposlib",
        "transformers",
    )
}
"""The versions that stored rows name."""
_WITHOUT_LOGIN = (
    "log in with `wandb login`, set WANDB_MODE=offline to keep the metrics on disk, or set "
    "--env.use_wandb false"
)


def require_wandb_login() -> None:
    """Raise FixableError if wandb would ask for a key; needs no network."""

    def is_in_netrc(host: str) -> bool:
        try:
            return bool(netrc(os.environ.get("NETRC")).authenticators(host))
        except (OSError, NetrcParseError):
            return False

    settings = wandb.setup().settings
    if not (
        settings.mode in ("disabled", "dryrun", "offline")
        or settings.api_key
        or settings.identity_token_file
        or any(map(is_in_netrc, (urlsplit(settings.base_url).netloc, "api.wandb.ai")))
    ):
        raise FixableError(
            f"use_wandb is true and wandb is not logged in: {_WITHOUT_LOGIN}"
        )


def start_wandb(config: Any, run_id: str, **about: Any) -> None:
    """Start the wandb run, to be finished at the exit; raises FixableError if wandb refuses.

    wandb leaves the end to the process that started its service: to a trainer that launched this
    one.
    """
    name = f"{config.wandb_name}-{datetime.now(timezone.utc).date()}-{run_id[:6]}"
    try:
        wandb.init(name=name, config=config.model_dump(), **about)
    except wandb.errors.Error as error:
        raise FixableError(
            f"wandb does not start ({error}): {_WITHOUT_LOGIN}"
        ) from error
    # An evaluation ends at a later step of the trainer than it began.
    wandb.define_metric("eval/*", step_metric="eval/step")
    atexit.register(_finish_wandb)


def _finish_wandb() -> None:
    try:
        wandb.finish()
    except _WANDB_ERRORS as error:
        logger.error("The end of the wandb run is missing: %s", error)
        with suppress(*_WANDB_ERRORS):
            wandb.teardown()  # its own attempt at the exit would print a traceback


class WandbFailures:
    """Logs what fails in wandb, whose process may be killed and whose disk may be full."""

    def __init__(self) -> None:
        self._lost_reports = 0

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Let the block fail in wandb without an end of the run."""
        try:
            yield
        except _WANDB_ERRORS as error:
            self._lost_reports += 1
            logger.error(
                "wandb fails, %d reports lost so far, training continues: %s",
                self._lost_reports,
                error,
                extra=throttled(),
            )


CURVES = [
    f"groups/{name}" for name in ("collected", "sent", "filtered", "lost", "unscored")
]


def grouped(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics for wandb: parts and events become tables, and CURVES of the events stay."""
    curves: dict[str, Any] = {}
    tables: defaultdict[str, dict[Any, dict[str, Any]]] = defaultdict(dict)
    parts = r"(\w+)/(?:difficulty/([^/]+)/)?(category|task|source)/([^/]+)/(?:level/(\d+)/)?(.+)"
    for name, value in metrics.items():
        match = re.fullmatch(parts, name)
        if match:
            group, difficulty, kind, of, level, number = match.groups()
            at = {"difficulty": difficulty, "level": level}
            row = {"kind": kind, "name": of, **{n: float(at[n]) for n in at if at[n]}}
            tables[f"{group}/tasks"].setdefault(tuple(row.items()), row)[number] = value
        elif name.startswith("counts/"):
            event = name.removeprefix("counts/")
            tables["perf/counts"][event] = {"event": event, "count": value}
            curves |= {f"perf/{event}": value} if event in CURVES else {}
        elif not re.fullmatch(r"train_perf/\w+_(std|min)", name):
            curves[name.replace("train_perf/", "perf/")] = value
    for name, rows in tables.items():
        columns = dict.fromkeys(column for row in rows.values() for column in row)
        data = [list(map(row.get, columns)) for row in rows.values()]
        curves[name] = wandb.Table(columns=[*columns], data=data)
    return curves


def rollout_rows(
    tokenizer: Any,
    scored_data: Mapping[str, Any],
    item: Any,
    *,
    keep: int,
    step: int,
) -> list[tuple[Any, ...]]:
    """Return the first `keep` rollouts of a delivered group as `rollout_table`'s; -1 keeps all."""
    recipe = item.recipe if isinstance(item, Problem) else None
    about = (item.oracle, recipe.task) if recipe else (None, None)
    tokens = scored_data["tokens"]
    level = recipe and recipe.level
    columns = [scored_data.get(name) or [] for name in ("statuses", "answers")]
    # A subclass may have made or cut the group: then nothing belongs to a row.
    if any(len(column) != len(tokens) for column in columns):
        columns = [[None] * len(tokens)] * 2
    rows = list(
        zip(tokens, scored_data["scores"], *columns, scored_data["masks"], strict=True)
    )
    return [
        (
            tokenizer.decode(list(ids)),
            score,
            *about,
            end,
            level,
            step,
            answer,
            trained_tokens(mask),
        )
        for ids, score, end, answer, mask in rows[: None if keep == -1 else keep]
    ]


ROLLOUT_COLUMNS = (
    "full_text",
    "score",
    "expected_answer",
    "task_name",
    "status",
    "level",
    "step",
    "answer",
    "tokens",
)
"""The table of rollouts; the first four are Atropos's own environments'."""


def rollout_table(groups: Sequence[Sequence[tuple[Any, ...]]]) -> wandb.Table:
    """Return the wandb table of kept rollouts.

    A subclass may have rows of its own: short ones are filled up, and further columns are numbered.
    """
    rows: list[list[Any]] = [list(row) for group in groups for row in group]
    width = max([len(ROLLOUT_COLUMNS), *map(len, rows)])
    columns: list[str | int] = [*ROLLOUT_COLUMNS]
    columns += [f"column_{n + 1}" for n in range(len(columns), width)]
    data = [row + [None] * (width - len(row)) for row in rows]
    # wandb takes the types of the first row for those of all.
    return wandb.Table(columns=columns, data=data, allow_mixed_types=True)


def run_description(
    config: Any,
    command: str,
    inference: InferenceClient,
    *,
    tasks: Sequence[str],
    versions: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the settings that a run's record shows."""
    shown = {
        "seed",
        "group_size",
        "temperature",
        "top_p",
        "max_token_length",
        "answer_format",
        "score_mode",
        "complexity_mode",
        "curriculum_target_accuracy",
        "sampling",
        "chat_template_kwargs",
        "thought_markers",
    }
    return {
        "command": command,
        "model_name": inference.model,
        "server_type": inference.server_type,
        "name": config.wandb_name,
        **config.model_dump(mode="json", include=shown),
        "tasks": tasks,
        "library_versions": versions,
    }


LOSSES = ("checkpoints/failed", "dumps/lost", "groups/not_written")
"""The counts of what a disk did not take."""


def report_run(statistics: Statistics, *, serving: bool, has_all_groups: bool) -> None:
    """Log the outcome of all groups and the counts of the run.

    Args:
        has_all_groups: whether each group should have an outcome; otherwise a caller has some.
    """
    unaccounted = statistics.unaccounted()
    # Else there were no groups: a failed start, or `evaluate`.
    if serving or unaccounted:
        logger.info("Groups: %s", statistics.accounting())
        logger.info("Closed after %s", signal_line(statistics.total))
    counts = statistics.counts
    losses = [f"{counts[name]:,} {name}" for name in LOSSES if counts[name]]
    if losses:
        logger.warning("Lost in this run: %s", ", ".join(losses))
    if counts:
        listed = ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items()))
        logger.debug("Counts of this run: %s", listed)
    if has_all_groups and any(unaccounted.values()):
        logger.error("Group accounting mismatch: %s", unaccounted)


def describe_output(
    config: Any, run_id: str, *, groups_path: Path | None, collected: int
) -> None:
    """Render the messages of Atropos's own file as HTML; print which files hold the groups.

    Args:
        groups_path: of Atropos's own file; None unless it is configured.
    """
    atropos = str(groups_path) if groups_path else None
    others = []
    if atropos and Path(atropos).exists():
        if config.include_messages:
            try:
                generate_html(atropos)
            except (OSError, SystemExit):
                # It prints why, and would end the program with status 1.
                logger.warning("The page of %s can't be written", atropos)
        others = [f"{atropos} (Atropos's own format)"]
    folder = Path(config.data_dumps_dir)
    dumps = sorted(folder.glob(f"reasoning_gym_environment_*rollouts_{run_id}_*.jsonl"))
    if dumps:
        lines = [
            "Wrote",
            *(f"  {path}" for path in [*dumps, *others]),
            "Inspect the groups:",
            f"  reasoning-gym-environment report {shlex.join(map(str, dumps))} -o report.html",
        ]
    elif others or not collected:
        lines = [
            f"Wrote {others[0]}" if others else "Wrote nothing: no group was collected"
        ]
    else:
        writes_all = atropos or config.dump_all_rollouts
        why = "see the log" if writes_all else "set --env.dump_all_rollouts"
        lines = [f"Wrote nothing: {why}"]
    tqdm.write("\n".join(lines), file=sys.stdout)  # above a live line


def redact_api_keys(folder: str | None) -> None:
    """Redact API keys in what Atropos stores with evaluation results; raises FixableError."""
    path = Path(folder or "", "evaluate_config.yaml")
    if folder is None or not path.exists():
        return
    try:
        text = re.sub(
            r"(\bapi_key:).*", r"\1 withheld", path.read_text(encoding="utf-8")
        )
        with replacing(path) as whole:
            whole.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FixableError(
            f"Could not redact the API key in {path}: {error}"
        ) from error
