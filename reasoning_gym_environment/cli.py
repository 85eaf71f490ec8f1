"""The command line: one command a module."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from .errors import FixableError, did_you_mean
from .util.logs import configure_logging
from .util.text import escape_control_characters

USAGE = """\
usage: reasoning-gym-environment COMMAND [options]

Train language models on reasoning-gym's tasks, with Atropos or any other trainer.

commands that use an inference server (for options: COMMAND --help):
  serve      feed a trainer through the Atropos API
  process    collect groups into files, without a trainer
  evaluate   run the fixed evaluation set

commands that need no server:
  demo       run everything for half a minute with a simulated policy
  init       write a commented configuration to start from
  rewards    serve scores and problems over HTTP to any trainer
  openenv    serve an OpenEnv environment
  tasks      list all tasks and which are used; --levels TASK shows a task's levels
  problems   write problems of chosen tasks and levels, with or without their solutions
  audit      check what every task's verifier pays for; fails on unknown findings
  rescore    score stored rollouts again under other settings, without inference
  show       print stored rollouts for people
  export     write stored rollouts for SFT or DPO, or whole, as JSONL, Parquet or a dataset
  compare    compare two evaluation results, paired by item
  suite      fixed evaluation sets: list, verify, leaderboard
  report     make an HTML page from dumps and evaluation results
  watch      show that page of runs while they write

Settings are options, --env.NAME VALUE (the environment) and --openai.NAME VALUE (the
inference server), or come from a file: --config FILE.yaml. --version prints the version.
"""

SERVING = ("serve", "process", "evaluate")
"""The commands of `commands.run`; each other command has a module of its name."""

COMMANDS = (
    *SERVING,
    "demo",
    "init",
    "rewards",
    "openenv",
    "tasks",
    "problems",
    "audit",
    "rescore",
    "show",
    "export",
    "compare",
    "suite",
    "report",
    "watch",
)


def run(arguments: Sequence[str]) -> int:
    """Run the command in the first argument; import no other command's code."""
    name, *options = arguments
    module = "run" if name in SERVING else name
    command: Callable[[Sequence[str]], int] = importlib.import_module(
        f".commands.{module}", __package__
    ).main
    return command(arguments if name in SERVING else options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    The code is 2 for errors that the user can fix, and 75 if the same command may succeed later.
    A closed pipe, as with `| head`, is a success.
    """
    try:
        code = _main(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 0
    return code


def _main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] in ("--version", "version"):
        from . import __version__  # slow

        print(f"reasoning-gym-environment {__version__}")
        return 0
    if arguments[0] not in COMMANDS:
        known = f"the commands are {', '.join(COMMANDS)}"
        hint = did_you_mean(arguments[0], COMMANDS, otherwise=known, most=1)
        return _fail(f"unknown command {arguments[0]!r}; {hint}")
    configure_logging()
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # PyTorch is not needed
    try:
        return run(arguments)
    except FixableError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _fail(message: str, status: int = FixableError.exit_status) -> int:
    print(f"error: {escape_control_characters(message)}", file=sys.stderr)
    return status
