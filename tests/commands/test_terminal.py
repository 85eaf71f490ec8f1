"""What commands print fits the terminal: nothing is wider than its columns."""

import re
import sys

import pytest
from terminal import in_terminal, lines

from reasoning_gym_environment.cli import COMMANDS, SERVING, main

PROGRAM = [sys.executable, "-m", "reasoning_gym_environment"]


@pytest.mark.parametrize("command", [*COMMANDS, "suite table", "suite verify"])
@pytest.mark.parametrize("columns", [80, 100, 140])
def test_help_fits(
    command: str,
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    if command in SERVING:
        assert main([command, "--help"]) == 0
    else:
        with pytest.raises(SystemExit):
            main([*command.split(), "--help"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(
        f"usage: reasoning-gym-environment {command.split()[0]} "
    )
    assert max(map(len, shown)) <= columns


@pytest.mark.processes
def test_tables_fit_a_terminal_and_are_whole_in_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, last_column in ((["tasks"], "use"), (["suite", "list"], "about")):
        assert main(arguments) == 0
        piped = capsys.readouterr().out.splitlines()
        assert piped[0].split()[-1] == last_column
        for columns in (80, 100):
            shown = lines(in_terminal([*PROGRAM, *arguments], columns=columns))
            assert max(map(len, shown)) <= columns
            assert len(shown) > len(piped)  # the last column wraps
            assert shown[1].split()[0] == piped[1].split()[0]


TABLE = """
from reasoning_gym_environment.util.values import table

print(table([["name", "chance", "cut"], ["a" * 60, "1%", "2%"]], drop=["cut"],
    legend={"chance": "of a guess", "cut": "truncated", "tokens": "of a completion"}))
"""


@pytest.mark.processes
def test_only_the_columns_that_are_shown_are_explained() -> None:
    for columns, explained in (
        (80, ["chance: of a guess; cut: truncated"]),
        (70, ["chance: of a guess"]),
    ):
        shown = lines(in_terminal([sys.executable, "-c", TABLE], columns=columns))
        assert [line for line in shown if ": " in line] == explained


LOGGING = """
import logging
from reasoning_gym_environment.util.logs import SecretRedactor, configure_logging

configure_logging(SecretRedactor(["sk-12345"]), live="live")
logger, live = logging.getLogger("a.module"), logging.getLogger("live")
live.info("%s", "long " * 40)
for _ in range(3):
    logger.warning("the key sk-12345 again")
logger.info("a message")
live.info("2 groups")
"""


@pytest.mark.processes
def test_a_log_line_is_time_level_message_and_repeated_warnings_are_counted() -> None:
    written = in_terminal([sys.executable, "-c", LOGGING], columns=80)
    assert re.search(
        r"\x1b\[33m[\d:]{8} WARNING the key withheld again\x1b\[0m", written
    )
    shown = [line.rstrip() for line in lines(written) if line.strip()]
    assert max(map(len, shown)) <= 80
    logged = [line.partition(" ")[2] for line in shown if line[2:3] == ":"]
    assert logged == ["WARNING the key withheld again", "INFO a message"]
    assert shown[0] == ("long " * 16).strip()
    assert shown[-2:] == ["2 groups", "3 times: the key withheld again"]
