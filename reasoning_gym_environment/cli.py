"""The command line: Atropos's own commands and ours."""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import re
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .core.errors import FixableError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from .tasks.audit_known import Known
    from .tasks.catalogue import TaskInfo

USAGE = """\
usage: reasoning-gym-environment COMMAND [options]

Train language models on reasoning-gym's tasks with Atropos.

commands of Atropos (options: COMMAND --help):
  serve      feed a trainer through the Atropos API
  process    collect groups into a file, without a trainer
  evaluate   run the fixed evaluation set

our own:
  demo       run everything here for half a minute, with a simulated policy
  tasks      list every task: name, category, whether it is used and why not
  audit      what every task's verifier pays for; fails on what isn't known

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
            close = difflib.get_close_matches(name, known)
            hint = f"did you mean {', '.join(close)}?" if close else "see --help"
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


def run_demo(arguments: Sequence[str]) -> int:
    """The main job with a simulated policy."""
    from .demo.run import main as demo

    return demo(arguments[1:])


def run_tasks(arguments: Sequence[str]) -> int:
    """List every task."""
    parser = ArgumentParser(prog="tasks", description="List every task reasoning-gym registers.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--include-tasks", default="", help="as env.include_tasks")
    parser.add_argument("--exclude-tasks", default="", help="as env.exclude_tasks")
    options = parser.parse_args(arguments[1:])
    from .runtime.task_pool import PoolSettings, TaskPool
    from .tasks.catalogue import select_tasks

    async def list_tasks() -> list[TaskInfo]:
        async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
            discovery = await pool.discover()
        if discovery.warning:
            logging.getLogger(__name__).warning("%s", discovery.warning)
        return select_tasks(
            discovery,
            include=[name for name in options.include_tasks.split(",") if name],
            exclude=[name for name in options.exclude_tasks.split(",") if name],
        )

    tasks = asyncio.run(list_tasks())
    print(json.dumps([t.to_json() for t in tasks], indent=2) if options.json else _table(tasks))
    return 0


def _table(tasks: Sequence[TaskInfo]) -> str:
    """Aligned columns: name, category, whether it is used and, if not, why."""
    width = max(len(task.name) for task in tasks)
    category = max(len(task.category) for task in tasks)
    rows = [
        f"{task.name:{width}}  {task.category:{category}}  {'used' if task.used else task.reason}"
        for task in tasks
    ]
    used = sum(task.used for task in tasks)
    return "\n".join([*rows, f"{used} of {len(tasks)} are used"])


def run_audit(
    arguments: Sequence[str], *, known: Mapping[str, Mapping[str, Known]] | None = None
) -> int:
    """Examine every task; 1 when something is found that isn't known.

    Args:
        known: instead of the package's own table.
    """
    parser = ArgumentParser(prog="audit", description="Examine every task's verifier and levels.")
    parser.add_argument("--tasks", default="", help="names, separated by commas; default: all")
    parser.add_argument("--items", type=int, default=30, help="of each task (default: 30)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    for kind, what in (("html", "a page"), ("markdown", "a page"), ("floors", "chance floors")):
        parser.add_argument(f"--{kind}", metavar="FILE", type=Path, help=f"write {what} there")
    options = parser.parse_args(arguments[1:])
    if options.items < 1:
        parser.error(f"--items is {options.items}: at least one is needed")
    from .runtime.audit import AuditSettings, audit_tasks, unexplained
    from .runtime.audit_html import as_html
    from .runtime.audit_report import as_json, as_markdown, as_text, chance_floors
    from .tasks.audit_known import known_findings

    names = [name for name in options.tasks.split(",") if name]
    table = known_findings() if known is None else known
    audit = asyncio.run(audit_tasks(AuditSettings(tasks=names, items=options.items, known=table)))
    pages = (
        (options.html, as_html),
        (options.markdown, as_markdown),
        (options.floors, chance_floors),
    )
    for path, render in pages:
        if path is not None:
            path.write_text(render(audit), encoding="utf-8")
    print(as_json(audit) if options.json else as_text(audit))
    return 1 if unexplained(audit) else 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "serve": run_atropos,
    "process": run_atropos,
    "evaluate": run_atropos,
    "demo": run_demo,
    "tasks": run_tasks,
    "audit": run_audit,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 2 for what the user can put right."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 2
    command = COMMANDS.get(arguments[0])
    if command is None:
        close = difflib.get_close_matches(arguments[0], COMMANDS)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(COMMANDS)}"
        return _fail(f"there is no command {arguments[0]!r}; {hint}")
    configure_logging()
    try:
        return command(arguments)
    except FixableError as error:
        return _fail(str(error))


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2
