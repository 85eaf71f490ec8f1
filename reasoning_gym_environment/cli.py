"""The command line: Atropos's own commands and ours."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from .errors import FixableError, did_you_mean
from .util.terminal import visible

if TYPE_CHECKING:
    from pydantic import ValidationError

USAGE = """\
usage: reasoning-gym-environment COMMAND [options]

Train language models on reasoning-gym's tasks with Atropos.

commands of Atropos (options: COMMAND --help):
  serve      feed a trainer through the Atropos API
  process    collect groups into a file, without a trainer
  evaluate   run the fixed evaluation set

our own:
  demo       run everything here for half a minute, with a simulated policy
  tasks      list every task, whether it is used and why not; --levels TASK shows its difficulty
  audit      what every task's verifier pays for; fails on what isn't known
  rescore    score stored rollouts again under other settings, without inference
  show       print stored rollouts for people to read
  export     stored rollouts for SFT or DPO training, or whole, as Parquet or datasets
  compare    two evaluation results, paired by item
  report     make a page to look at from dumps and evaluation results

Settings come from --env.NAME VALUE (the environment) and --openai.NAME VALUE (the
inference server), or from a file: --config FILE.yaml.
"""

_NEGATIVE = re.compile(r"-\.?\d")


def join_negative_values(arguments: Sequence[str]) -> list[str]:
    """Write `--name -1` as `--name=-1`: Atropos takes the former for a flag.

    Example:
        >>> join_negative_values(["--env.total_steps", "-1"])
        ['--env.total_steps=-1']
    """
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1].startswith("--") and _NEGATIVE.match(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def require_known_settings(arguments: Sequence[str], known: Collection[str]) -> None:
    """Raises FixableError for an --env option that does not exist, with the closest ones."""
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--env.")
        if argument.startswith("--env.") and name not in known:
            hint = did_you_mean(name, known, otherwise="see --help")
            raise FixableError(f"there is no setting --env.{name}; {hint}")


def configure_logging() -> None:
    """Log to standard error at INFO; `debug_logging` lowers the level of this package alone."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for chatty in ("httpx", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def describe_validation(error: ValidationError) -> str:
    """Each bad value in a sentence of its own."""
    sentences = []
    for problem in error.errors():
        setting = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        sentences.append(f"{setting} is {problem['input']!r}: {message}" if setting else message)
    return "; ".join(sentences)


def run_atropos(arguments: Sequence[str]) -> int:
    """serve, process or evaluate, by Atropos's own command line."""
    from pydantic import ValidationError
    from yaml import YAMLError

    from .reasoning_gym_environment import ReasoningGymEnv

    # Atropos sets DEBUG there, which would log the servers' API keys.
    logging.getLogger("atroposlib.envs.base").setLevel(logging.INFO)
    sys.argv[1:] = join_negative_values(arguments)
    require_known_settings(sys.argv, ReasoningGymEnv.env_config_cls.model_fields)
    try:
        ReasoningGymEnv.cli()
    except ValidationError as error:
        raise FixableError(describe_validation(error)) from error
    except (FileNotFoundError, YAMLError) as error:
        raise FixableError(f"the file given with --config can't be read: {error}") from error
    return 0


COMMANDS = {
    "serve": None,
    "process": None,
    "evaluate": None,
    "demo": "demo.run",
    "tasks": "commands.tasks",
    "audit": "commands.audit",
    "rescore": "commands.rescore",
    "show": "commands.show",
    "export": "commands.export",
    "compare": "commands.compare",
    "report": "commands.report",
}
"""Command to the module whose `main` runs it; None is Atropos's own command line."""


def run(arguments: Sequence[str]) -> int:
    """Run the command that comes first among the arguments; imports no other command's code.

    One whose output nobody reads on, as with `| head`, has done its work.
    """
    module = COMMANDS[arguments[0]]
    if module is None:
        return run_atropos(arguments)
    command: Callable[[Sequence[str]], int]
    command = importlib.import_module(f".{module}", __package__).main
    try:
        code = command(arguments[1:])
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
    try:
        return run(arguments)
    except FixableError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _fail(message: str, status: int = FixableError.exit_status) -> int:
    print(f"error: {visible(message)}", file=sys.stderr)
    return status
