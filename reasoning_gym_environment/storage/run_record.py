"""The record of a run beside its dumps: its settings, how it goes, and its last warnings.

It is one small file, replaced every few seconds off the event loop, for `watch` and `report`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from ..util.concurrency import DaemonWriter
from ..util.files import read_regular, stays_below, write_whole
from ..util.log_throttle import THROTTLE, throttled
from ..util.logs import SecretRedactor
from ..util.values import convert, escape_control_characters
from .rows import utc_now

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


RECORD_SECONDS = 10.0
"""Interval between two writes of a run's record."""

LOOK_SECONDS = 1.0
"""Interval between two looks at what the run waits for."""

LEAST_WAIT_SECONDS = 10.0
"""Waits that are shorter are not recorded: a queue that is full for seconds is no outage."""

KEPT_WAITS = 100
KEPT_EVENTS = 100
"""Waits and events in a record, the last ones."""

KEPT_WARNINGS = 50
"""Warnings of the log in a record, the last ones."""


class LoggedWarning(Struct, frozen=True):
    """A warning or error of the run's log, on one line, with its time in UTC as ISO 8601."""

    time: str
    level: str
    text: str


class RecordedWait(Struct, frozen=True):
    """A time in which a run waited, ISO 8601; `until` is empty while it lasts."""

    reason: str
    since: str
    until: str = ""


class RecordedEvent(Struct, frozen=True):
    """What happened, such as an evaluation.

    Attributes:
        until: when it ended; `time` of what took no time, empty while it lasts.
    """

    time: str
    text: str
    until: str


class RecordedServer(Struct, frozen=True):
    """How an inference server answers.

    Attributes:
        in_flight: requests that it has not answered yet.
        waiting: requests that are held back: no place is free, or its rate limit pauses them.
        seconds: of a request, over the last replies; None before the first.
    """

    url: str
    in_flight: int
    waiting: int
    replies: int
    seconds: float | None
    is_available: bool


class RunRecord(Struct, frozen=True, kw_only=True):
    """What a run says about itself.

    Attributes:
        ended: empty before, and after `kill -9`.
        ending: at which step it ended.
        settings: who the run is: command, model, sampling settings, seed and so on.
        step: the trainer's, or the groups that `process` has done.
        total_steps: after which it ends; -1 if nothing says so.
        outcomes: number of groups by what became of them.
        servers: how the inference servers answer.
        waits: what the run waited for, and when; the last one may last.
        events: what happened, and when.
        waiting: what requests wait for; empty if nothing holds them back.
        failures: groups lost in a row, now.
        lost: groups lost to disk.
        deleted: dump files deleted at their limit.
    """

    run: str
    started: str
    updated: str
    ended: str = ""
    ending: str = ""
    settings: dict[str, Any] = {}
    step: int | None = None
    total_steps: int = -1
    outcomes: dict[str, int] = {}
    servers: list[RecordedServer] = []
    waits: list[RecordedWait] = []
    events: list[RecordedEvent] = []
    waiting: str = ""
    failures: int = 0
    lost: int = 0
    deleted: int = 0
    warnings: list[LoggedWarning] = []

    @property
    def wait(self) -> RecordedWait | None:
        """What the run waits for; None while it works."""
        last = self.waits[-1] if self.waits else None
        return last if last is not None and not last.until else None


def record_path(folder: Path, run: str) -> Path:
    """Return the file of a run's record."""
    return folder / f"reasoning_gym_environment_run_{run}.json"


def is_record(name: str) -> bool:
    """Return whether a file of that name is a run's record."""
    return bool(re.fullmatch(r"reasoning_gym_environment_run_[\w-]{1,80}\.json", name))


def read_record(path: Path) -> RunRecord | None:
    """Read a record; None if it can't be read, since its dumps need nothing of it."""
    try:
        return convert(json.loads(read_regular(path, max_bytes=2**20)), RunRecord)
    except (OSError, ValueError, RecursionError):
        return None


def read_run(folder: Path, run: str) -> RunRecord | None:
    """Read the record of a run, whose name may come from a row; None without one."""
    path = record_path(folder, run)
    mine = is_record(path.name) and path.parent == folder and stays_below(path, folder)
    return read_record(path) if mine else None


class _WarningCollector(logging.Handler):
    """Keeps the last warnings of the package's log, without API keys."""

    def __init__(self, redactor: SecretRedactor) -> None:
        super().__init__(logging.WARNING)
        self.kept: deque[LoggedWarning] = deque(maxlen=KEPT_WARNINGS)
        self._redactor = redactor

    def emit(self, record: logging.LogRecord) -> None:
        text = self._redactor.clean(record.getMessage()).partition("\n")[0]
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(
            timespec="seconds"
        )
        text = escape_control_characters(text)[:300]
        self.kept.append(LoggedWarning(time=time, level=record.levelname, text=text))


class RunRecorder:
    """Writes a run's record until it is closed. A disk that fails or hangs disturbs nothing.

    Args:
        redactor: has the API keys, which the log may name.
    """

    record_seconds = RECORD_SECONDS
    """Seconds between two writes."""

    least_wait_seconds = LEAST_WAIT_SECONDS
    """How long a wait must last to be recorded."""

    def __init__(
        self,
        folder: Path,
        run: str,
        *,
        disk: DaemonWriter,
        redactor: SecretRedactor,
    ) -> None:
        self._path = record_path(folder, run)
        self._record: dict[str, Any] = {"run": run, "started": utc_now()}
        self._state: Callable[[], dict[str, Any]] = dict
        self._wait: Callable[[], str] = str
        self._waits: deque[RecordedWait] = deque(maxlen=KEPT_WAITS)
        self._current_wait: RecordedWait | None = None
        self._wait_began = 0.0
        self._events: deque[RecordedEvent] = deque(maxlen=KEPT_EVENTS)
        self._warnings = _WarningCollector(redactor)
        self._disk = disk
        self._pending: asyncio.Future[None] | None = None
        self._repeating: asyncio.Task[None] | None = None

    def start(
        self,
        settings: Mapping[str, Any],
        state: Callable[[], dict[str, Any]],
        wait: Callable[[], str] = str,
    ) -> None:
        """Begin to write; later calls do nothing.

        Args:
            state: returns the record's changing fields, such as `step` and `failures`.
            wait: returns what the run waits for, in the same words while it lasts; else empty.
        """
        if self._repeating is None:
            self._record["settings"] = dict(settings)
            self._state = state
            self._wait = wait
            logging.getLogger(__package__.partition(".")[0]).addHandler(self._warnings)
            self._repeating = asyncio.create_task(self._repeat())

    async def _repeat(self) -> None:
        written_at = -math.inf
        while True:
            self._note_wait(self._wait())
            is_due = time.monotonic() - written_at >= self.record_seconds
            if is_due and (self._pending is None or self._pending.done()):
                self._submit()
                written_at = time.monotonic()
            await asyncio.sleep(min(LOOK_SECONDS, self.record_seconds))

    def note_event(self, text: str) -> None:
        """Note what happened now."""
        now = utc_now()
        self._events.append(RecordedEvent(time=now, text=text, until=now))

    @contextmanager
    def note_while(self, text: str) -> Iterator[None]:
        """Note what happens from now to the end of the block."""
        event = RecordedEvent(time=utc_now(), text=text, until="")
        self._events.append(event)
        try:
            yield
        finally:
            ended = structs.replace(event, until=utc_now())
            events = [ended if each is event else each for each in self._events]
            self._events = deque(events, maxlen=KEPT_EVENTS)

    def _note_wait(self, reason: str) -> None:
        """Begin a wait, or end the last one, if the reason is another one than before."""
        current = self._current_wait
        if reason == (current.reason if current else ""):
            return
        if current is not None and self._is_long():
            self._waits.append(structs.replace(current, until=utc_now()))
        self._current_wait = None
        if reason:
            self._current_wait = RecordedWait(reason=reason, since=utc_now())
            self._wait_began = time.monotonic()

    def _is_long(self) -> bool:
        return time.monotonic() - self._wait_began >= self.least_wait_seconds

    def _recorded_waits(self) -> list[dict[str, Any]]:
        waits = list(self._waits)
        if self._current_wait is not None and self._is_long():
            waits.append(self._current_wait)
        return list(map(structs.asdict, waits))

    def _submit(self, **end: str) -> None:
        if end:
            self._note_wait("")
        warnings = [structs.asdict(warning) for warning in list(self._warnings.kept)]
        record = {
            **self._record,
            "updated": utc_now(),
            **self._state(),
            "waits": self._recorded_waits(),
            "events": [structs.asdict(event) for event in self._events],
            "warnings": warnings,
        }
        text = json.dumps({**record, **end}) + "\n"
        self._pending = self._disk.submit(lambda: self._write(text))

    def _write(self, text: str) -> None:
        try:
            write_whole(self._path, text)
        except OSError as error:
            logger.warning(
                "The run's record can't be written: %s",
                error,
                extra=throttled(self._path),
            )

    def close(self, ending: str = "") -> None:
        """Submit the end, which the disk's `close` waits for. Idempotent.

        Args:
            ending: at which step the run ended.
        """
        if self._repeating is not None:
            self._repeating.cancel()
            self._repeating = None
            logging.getLogger(__package__.partition(".")[0]).removeHandler(
                self._warnings
            )
            self._submit(ended=utc_now(), ending=ending)
