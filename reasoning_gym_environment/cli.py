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

Train language models on reasoning-gym's tasks with Atropos.

commands that ask inference servers (options: COMMAND --help):
  serve      feed a trainer through the Atropos API
  process    collect groups into files, without a trainer
  evaluate   run the fixed evaluation set

what needs no server:
  demo       run everything here for half a minute, with a simulated policy
  init       write a commented configuration to start from
  rewards    serve scores and problems over HTTP, for any trainer
  tasks      list every task, whether it is used and why not; --levels TASK shows its difficulty
  problems   problems of chosen tasks and levels as data, with or without their solution
  audit      what every task's verifier pays for; fails on what isn't known
  rescore    score stored rollouts again under other settings, without inference
  show       print stored rollouts for people to read
  export     stored rollouts for SFT or DPO training, or whole, as Parquet or datasets
  compare    two evaluation results, paired by item
  report     make a page to look at from dumps and evaluation results

Settings come from --env.NAME VALUE (the environment) and --openai.NAME VALUE (the
inference server), or from a file: --config FILE.yaml.
"""

COMMANDS = {
    "serve": None,
    "process": None,
    "evaluate": None,
    "demo": "commands.demo",
    "init": "commands.init",
    "rewards": "commands.rewards",
    "tasks": "commands.tasks",
    "problems": "commands.problems",
    "audit": "commands.audit",
    "rescore": "commands.rescore",
    "show": "commands.show",
    "export": "commands.export",
    "compare": "commands.compare",
    "report": "commands.report",
}
"""Command to the module whose `main` runs it; None is for those that share `commands.run`."""


def run(arguments: Sequence[str]) -> int:
    """Run the command that comes first among the arguments; imports no other command's code.

    One whose output nobody reads on, as with `| head`, has done its work.
    """
    module = COMMANDS[arguments[0]] or "commands.run"
    command: Callable[[Sequence[str]], int] = importlib.import_module(
        f".{module}", __package__
    ).main
    try:
        code = command(arguments if module == "commands.run" else arguments[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 0
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    2 is for what the user can put right, 75 for what the same command may get past later.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        known = f"there are {', '.join(COMMANDS)}"
        hint = did_you_mean(arguments[0], COMMANDS, otherwise=known, most=1)
        return _fail(f"there is no command {arguments[0]!r}; {hint}")
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
