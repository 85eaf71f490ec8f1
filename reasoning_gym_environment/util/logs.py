"""Logging as plain lines, for a terminal or as JSON, without API keys."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

from ..errors import FixableError
from .values import WITHHELD, escape_control_characters


class SecretRedactor:
    """Replaces API keys in text.

    Example:
        >>> SecretRedactor(["sk-12345"]).clean("Bearer sk-12345")
        'Bearer withheld'
    """

    def __init__(self, keys: Iterable[Any] = ()) -> None:
        # Redacting a shorter key would hide words and protect nothing.
        texts = {str(key) for key in keys if len(str(key)) >= 6}
        self._keys = sorted(texts, key=len, reverse=True)

    def clean(self, text: str) -> str:
        """Return the text without keys."""
        for key in self._keys:
            text = text.replace(key, WITHHELD)
        return text


class PlainLines(logging.Formatter):
    """A formatter for people; tracebacks have no keys either."""

    def __init__(self, redactor: SecretRedactor, *, brief: bool = False) -> None:
        name, times = ("", "%H:%M:%S") if brief else (" %(name)s:", None)
        super().__init__(f"%(asctime)s %(levelname)s{name} %(message)s", times)
        self._redactor = redactor

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line; what a verifier raises may have lines that look like others."""
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.clean(super().format(record))


class JsonLines(PlainLines):
    """A formatter of one JSON object a line: time (UTC), level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(
            {name: self._redactor.clean(text) for name, text in row.items()}
        )


def configure_logging(
    redactor: SecretRedactor | None = None,
    *,
    quiet: bool = False,
    as_json: bool = False,
    live: str = "",
    debug: bool = False,
) -> None:
    """Log to standard error; a host's own handlers stay unless `redactor` is given.

    Args:
        quiet: log only warnings and errors, even with debug logging.
        live: the logger whose last line stays at the bottom of a terminal.
        debug: name the logger of each line on a terminal, too.
    """
    handler: logging.Handler = logging.StreamHandler()
    form = JsonLines if as_json else PlainLines
    terminal = sys.stderr.isatty() and not as_json
    if terminal:
        from .progress import AboveBars  # slow, and not needed elsewhere

        handler = AboveBars(live)
    handler.setLevel(logging.WARNING if quiet else logging.NOTSET)
    handler.setFormatter(
        form(redactor or SecretRedactor(), brief=terminal and not debug)
    )
    logging.basicConfig(
        level=logging.INFO, handlers=[handler], force=redactor is not None
    )
    logging.captureWarnings(redactor is not None)
    for chatty in ("httpx", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def ensure_handler(redactor: SecretRedactor, *others: str) -> None:
    """Log the package's messages to standard error where nobody has configured logging.

    Args:
        others: names of other loggers whose messages are logged, too.
    """
    for name in (__package__.partition(".")[0], *others):
        logger = logging.getLogger(name)
        if not logger.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(PlainLines(redactor))
            logger.addHandler(handler)


def exit_status(run: Callable[[], int]) -> int:
    """Run a program; print an error that the user can fix as one sentence."""
    try:
        return run()
    except FixableError as error:
        sys.stderr.write(f"error: {escape_control_characters(str(error))}\n")
        return error.exit_status
