"""What is logged and how: lines or JSON, and never an API key."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

WITHHELD = "withheld"

_SHORTEST = 6
"""Characters of a key that is looked for in text; `x` and `none` are no secrets."""


class SecretRedactor:
    """Takes keys out of texts.

    Example:
        >>> SecretRedactor(["sk-12345"]).clean("Bearer sk-12345")
        'Bearer withheld'
    """

    def __init__(self, keys: Iterable[Any] = ()) -> None:
        texts = {str(key) for key in keys}
        self._keys = sorted((key for key in texts if len(key) >= _SHORTEST), key=len, reverse=True)

    def clean(self, text: str) -> str:
        for key in self._keys:
            text = text.replace(key, WITHHELD)
        return text

    def clean_arguments(self, arguments: Sequence[str]) -> list[str]:
        """Clean a program's arguments, which wandb records and uploads."""
        return [self.clean(argument) for argument in arguments]


class PlainLines(logging.Formatter):
    """Writes records as lines for people, tracebacks included, without keys."""

    def __init__(self, withholder: SecretRedactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._withholder = withholder

    def format(self, record: logging.LogRecord) -> str:
        return self._withholder.clean(super().format(record))


class JsonLines(PlainLines):
    """Writes each record as one JSON object: time (UTC), level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps({name: self._withholder.clean(text) for name, text in row.items()})


def configure_logging(
    withholder: SecretRedactor | None = None,
    *,
    quiet: bool = False,
    as_json: bool = False,
    handler: logging.Handler | None = None,
) -> None:
    """Log to standard error; a host's own handlers stay, unless `withholder` is given.

    Args:
        withholder: knows the keys; no handler that doesn't is left.
        quiet: warnings and errors alone, whatever else is switched on.
        handler: writes the records; a plain one unless given.
    """
    handler = handler or logging.StreamHandler()
    handler.setLevel(logging.WARNING if quiet else logging.NOTSET)
    form = JsonLines if as_json else PlainLines
    handler.setFormatter(form(withholder or SecretRedactor()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=withholder is not None)
    logging.captureWarnings(withholder is not None)
    for chatty in ("httpx", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
