"""`serve`, `process` and `evaluate`: what needs no heavy import is looked at first."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import FixableError
from ..util.command_line import Given, read_given
from ..util.logs import SecretRedactor, configure_logging
from .help_text import help_text
from .options import is_on, known_of, read_options, require_values
from .task_names import require_tasks

HELP = ("-h", "--help", "--help-all")

_PACKAGE = "reasoning_gym_environment"
_OF_EVERY_GROUP = ("problems.training", "scoring.grading", "storage.dumps")
"""Modules that log a line or more for every group: under debug_logging alone."""

_PROGRESS_LINE = f"{_PACKAGE}.rollouts.progress.line"


class Logs(NamedTuple):
    """How much is logged, and as what."""

    quiet: bool
    as_json: bool


def main(arguments: Sequence[str]) -> int:
    """Run the command; 1, after a traceback without API keys, where it breaks.

    Args:
        arguments: the command and its options.

    Raises:
        FixableError: without API keys.
    """
    command, *rest = arguments
    options = read_options()
    if asked := [argument for argument in rest if argument in HELP]:
        print(help_text(command, options, everything="--help-all" in asked))
        return 0
    logs = Logs(quiet="--quiet" in rest, as_json="--json-logs" in rest)
    given = read_given([a for a in rest if a not in ("--quiet", "--json-logs")], known_of(options))
    withholder = SecretRedactor(given.keys)
    sys.argv[1:] = withholder.clean_arguments(sys.argv[1:])  # wandb records them
    try:
        require_values(given, options)
        require_tasks(given.env)
        _launch(command, given, logs, withholder)
    except FixableError as error:
        raise error.reworded(withholder.clean(str(error))) from error
    except Exception:  # noqa: BLE001 - printed whole, but for the keys
        print(withholder.clean(traceback.format_exc()), file=sys.stderr, end="")
        return 1
    return 0


def _launch(command: str, given: Given, logs: Logs, withholder: SecretRedactor) -> None:
    live = sys.stderr.isatty() and not logs.quiet and not logs.as_json
    if logs.quiet or logs.as_json:
        os.environ.setdefault("WANDB_SILENT", "true")
    handler = None
    if live:
        from ..util.progress import AboveBars

        handler = AboveBars(_PROGRESS_LINE)
    configure_logging(withholder, quiet=logs.quiet, as_json=logs.as_json, handler=handler)
    if not is_on(given.env.get("debug_logging")):
        for name in _OF_EVERY_GROUP:
            logging.getLogger(f"{_PACKAGE}.{name}").setLevel(logging.WARNING)
    from ..atropos.launch import launch
    from ..reasoning_gym_environment import ReasoningGymEnv

    launch(ReasoningGymEnv, command, given, summary_seconds=1.0 if live else 10.0)
