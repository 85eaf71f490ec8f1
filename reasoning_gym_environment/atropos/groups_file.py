"""Atropos's own file of groups, `data_path_to_save_groups`, with one group of rows a line."""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..util.concurrency import DaemonWriter
from ..util.files import UnwritableError, append_whole
from ..util.log_throttle import THROTTLE, throttled
from ..util.outages import Outage
from .rows import COLUMNS

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


class GroupsFile:
    """Appends groups to a file off the event loop; a failing disk costs the groups alone.

    Args:
        path: a file of that name that exists is kept, and the next free name taken.
        counts: counter "groups/not_written".
        waits: whether `write` returns only when the group is on disk, even if the disk hangs.

    Attributes:
        path: the file that is written.

    Raises:
        UnwritableError: the file can't be created.
    """

    def __init__(self, path: Path, counts: Counter[str], *, waits: bool) -> None:
        self.path = _create_next_free(path)
        self._counts = counts
        self._waits = waits
        self._disk = DaemonWriter(self.path)
        self._failure = Outage()

    async def write(self, group: Mapping[str, Any]) -> bool:
        """Write a group, see `DaemonWriter.write`; return False on a failure."""
        try:
            await self._disk.write(lambda: self._append(group), must_end=self._waits)
        except OSError:  # logged and counted
            return False
        return True

    def _append(self, group: Mapping[str, Any]) -> None:
        columns = {
            name: [list(row) for row in group[name]] for name in COLUMNS if group[name]
        }
        line = json.dumps({**group, **columns}) + "\n"
        try:
            append_whole(self.path, line.encode())
        except OSError as error:
            self._failure.record_failure()
            self._count_missing(1, error)
            raise
        self._failure.end()

    def _count_missing(self, groups: int, reason: object) -> None:
        """Count groups, and log once a minute how many are missing by now."""
        self._counts["groups/not_written"] += groups
        logger.error(
            "Groups missing in data_path_to_save_groups: %d (%s)",
            self._counts["groups/not_written"],
            reason,
            extra=throttled((self._failure.episode, type(reason))),
        )

    def close(self) -> None:
        """Wait for pending writes for a while, and count the rest; delete a file without groups."""
        lost = self._disk.close()
        if lost:
            self._count_missing(lost, "its disk does not respond")
        elif self.path.is_file() and not self.path.stat().st_size:
            self.path.unlink()


def _create_next_free(path: Path) -> Path:
    """Create a file of that name, or with `_1`, `_2`, … where it exists, as Atropos does."""
    names = (
        path.with_stem(f"{path.stem}_{number}") if number else path
        for number in itertools.count()
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = next(name for name in names if _create(name))
    except OSError as error:
        raise UnwritableError(
            f"data_path_to_save_groups: {error}; choose another"
        ) from error
    if free != path:
        logger.info("%s exists already: writing the groups to %s", path, free)
    return free


def _create(path: Path) -> bool:
    """Create a file; return False if there is one. Any other OSError is raised."""
    try:
        path.open("x").close()
    except FileExistsError:
        return False
    return True
