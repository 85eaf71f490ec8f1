"""Log lines in both formats, without API keys."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from reasoning_gym_environment.util.logs import JsonLines, PlainLines, SecretRedactor

KEY = "sk-0123456789"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("a test's own")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers.clear()


def logged(logger: logging.Logger, formatter: logging.Formatter) -> str:
    """What two messages and a traceback with the key become."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    logger.info("key %s", KEY)
    try:
        raise ValueError(f"bad key {KEY}")
    except ValueError:
        logger.exception("broken")
    return stream.getvalue()


def test_lines_and_tracebacks_have_no_key(logger: logging.Logger) -> None:
    text = logged(logger, PlainLines(SecretRedactor([KEY])))
    assert KEY not in text
    assert "INFO a test's own: key withheld" in text
    assert "ValueError: bad key withheld" in text


def test_a_message_forges_no_line(logger: logging.Logger) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainLines(SecretRedactor([])))
    logger.addHandler(handler)
    logger.info("a verifier raised: %s", "x\r\n12:00:00 INFO all is well\n")
    [line] = stream.getvalue().splitlines()
    assert line.endswith(r"raised: x\r\n12:00:00 INFO all is well\n")


def test_json_lines_have_no_key(logger: logging.Logger) -> None:
    text = logged(logger, JsonLines(SecretRedactor([KEY])))
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["message"] for row in rows] == ["key withheld", "broken"]
    assert [row["level"] for row in rows] == ["INFO", "ERROR"]
    assert rows[1]["traceback"].endswith("ValueError: bad key withheld")
    assert all(row["time"].endswith("+00:00") for row in rows)


def test_short_keys_are_kept_and_long_ones_are_replaced_first() -> None:
    redactor = SecretRedactor(["x", None, "secret", "secret-and-more"])
    assert redactor.clean("x secret-and-more secret") == "x withheld withheld"
