"""JSONL dumps of scored groups: the writer that loses nothing, and the reader.

A group is one JSON object on one line, on disk before the group counts as done. After
`kill -9` every finished group is there; a torn last line is skipped and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..records import Attempt, GroupResult, Reward, Verdict

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
PROGRESS_EVERY = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class DumpKind:
    """One series of files: `reasoning_gym_environment_{name}_{run}_{batch:04d}.jsonl`."""

    name: str
    groups_per_file: int


SUCCESSFUL = DumpKind(name="rollouts", groups_per_file=100)
FAILED = DumpKind(name="FAILED_rollouts", groups_per_file=50)


def dump_kind(
    rewards: Iterable[float], *, threshold: float, successful: bool, failed: bool
) -> DumpKind | None:
    """Where a group goes: successful with any reward above the threshold, failed with all 0.

    Args:
        successful, failed: whether that kind is dumped at all.
    """
    best = max(rewards)
    if successful and best > threshold:
        return SUCCESSFUL
    if failed and best == 0.0:
        return FAILED
    return None


def attempt_row(attempt: Attempt, prompt: list[dict[str, str]]) -> dict[str, Any]:
    """One rollout: its whole conversation and the score that belongs to it."""
    completion = attempt.completion
    return {
        "conversation": [*prompt, {"role": "assistant", "content": completion.text}],
        **grade_row(attempt.answer, attempt.verdict, attempt.reward),
        "finish_reason": completion.finish_reason,
        "tokens": len(completion.tokens),
        "completion_tokens": completion.completion_tokens,
    }


def grade_row(answer: str | None, verdict: Verdict, reward: Reward) -> dict[str, Any]:
    """The part of a rollout's record that scoring it again replaces."""
    return {
        "score": reward.value,
        "answer": answer,
        "status": verdict.status.value,
        "detail": verdict.detail,
        "raw_score": verdict.score,
        "raw_form_score": verdict.raw_score,
        "tagged_form_score": verdict.tagged_score,
        "length_factor": reward.length_factor,
        "verify_seconds": round(verdict.seconds, 6),
    }


def group_row(
    group: GroupResult, prompt: list[dict[str, str]], run: Mapping[str, Any]
) -> dict[str, Any]:
    """A group as it is dumped: enough to regenerate its problem and to score it again.

    Args:
        prompt: the messages the rollouts began with.
        run: what is the same for all rows of a run: its name, replica, library versions.
    """
    return {
        "item_id": group.problem.recipe.task,
        "rollouts": [attempt_row(attempt, prompt) for attempt in group.attempts],
        "schema_version": SCHEMA_VERSION,
        "recipe": group.problem.recipe.to_json(),
        "oracle": group.problem.oracle,
        **run,
    }


class DumpWriter:
    """Appends groups to numbered files, one write a group, off the event loop.

    A disk that can't be written to is reported loudly once and counted from then on; training
    goes on.

    Args:
        folder: created when the first group comes.
        run_id: part of every file name.
        counts: where "dumps/<kind>" and "dumps/lost" are counted.
    """

    def __init__(self, folder: Path, run_id: str, counts: Counter[str]) -> None:
        self._folder = folder
        self._run_id = run_id
        self._counts = counts
        self._written: Counter[DumpKind] = Counter()
        self._broken = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dumps")

    def path(self, kind: DumpKind, number: int) -> Path:
        """The file of the group of that number, from 0."""
        batch = number // kind.groups_per_file
        name = f"reasoning_gym_environment_{kind.name}_{self._run_id}_{batch:04d}.jsonl"
        return self._folder / name

    async def write(self, kind: DumpKind, row: Mapping[str, Any]) -> None:
        """Returns when the row is on disk, or is counted as lost; cancelling does not stop it."""
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self._thread, self._write, kind, row))

    def _write(self, kind: DumpKind, row: Mapping[str, Any]) -> None:
        line = (json.dumps(row) + "\n").encode()  # ASCII: safe for any model text
        path = self.path(kind, self._written[kind])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            append_whole(path, line)
        except OSError as error:
            self._counts["dumps/lost"] += 1
            if not self._broken:
                logger.error(
                    "Dumps can't be written to %s (%s): groups are lost to disk from here on, "
                    "training goes on; free space or change data_dumps_dir",
                    self._folder,
                    error,
                )
            self._broken = True
            return
        self._broken = False
        self._written[kind] += 1
        self._counts[f"dumps/{kind.name}"] += 1
        self._log_progress(kind, path)

    def _log_progress(self, kind: DumpKind, path: Path) -> None:
        done = self._written[kind] % kind.groups_per_file
        if done == 0:
            logger.info("Dump file complete: %s (%d groups)", path, kind.groups_per_file)
        elif done % PROGRESS_EVERY == 0:
            logger.info("%s: %d of %d groups in %s", kind.name, done, kind.groups_per_file, path)

    def close(self) -> None:
        """Wait for writes under way. May be called again."""
        self._thread.shutdown(wait=True)


def append_whole(path: Path, data: bytes) -> None:
    """Append all of the data or none of it.

    Raises:
        OSError: it could not be written; the file ends where it did before.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        end = os.fstat(descriptor).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])
        except OSError:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)


class DumpContent(NamedTuple):
    """The groups of a file, and how many lines could not be read."""

    rows: list[dict[str, Any]]
    torn: int


def read_dump(path: Path) -> DumpContent:
    """Read a dump file; a line that is no JSON object is skipped and counted.

    Raises:
        OSError: the file can't be read.
    """
    rows, torn = [], 0
    for line in path.read_bytes().splitlines():
        try:
            rows.append(_parse(line))
        except (ValueError, RecursionError):
            torn += 1
    if torn:
        logger.warning("%s: skipped %d torn lines", path, torn)
    return DumpContent(rows, torn)


def _parse(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    return row
