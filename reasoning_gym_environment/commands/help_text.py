"""The help of serve, process and evaluate."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import groupby

from .options import Option

_PARENTHESIS = re.compile(r" \([^)]*\)")

_WIDTH = 118
_COLUMN = 37

ABOUT = {
    "serve": "Feed a trainer through the Atropos API, until training ends.",
    "process": "Collect groups into files, without a trainer: env.total_steps of them.",
    "evaluate": "Run the fixed evaluation set and write its samples and metrics.",
}

EXAMPLES = {
    "serve": "run-api &\nreasoning-gym-environment init vllm > vllm.yaml\n"
    "reasoning-gym-environment serve --config vllm.yaml --env.complexity_mode curriculum",
    "process": "reasoning-gym-environment process --openai.base_url http://localhost:9004/v1 \\\n"
    "    --openai.model_name MODEL --env.tokenizer_name MODEL --env.use_wandb False",
    "evaluate": "reasoning-gym-environment evaluate --openai.base_url http://localhost:9004/v1 \\\n"
    "    --openai.model_name MODEL --env.tokenizer_name MODEL --env.use_wandb False",
}

GENERAL = {
    "--config FILE.yaml": "settings below `env:` and `openai:`; options win over them",
    "--quiet": "log warnings and errors alone",
    "--json-logs": "log JSON, one object a line",
    "--slurm": "Atropos finds the servers by Slurm's list of nodes",
    "--testing": "Atropos's stand-in for a server, for its own tests",
    "--help": "the options most runs set, one line each",
    "--help-all": "all options, in full",
}


def help_text(command: str, options: Sequence[Option], *, everything: bool) -> str:
    """Write the help of a command.

    Args:
        everything: all options with all that is said of them, in place of a line each.
    """
    head = [
        f"usage: reasoning-gym-environment {command} [--config FILE.yaml] [--env.NAME VALUE ...] "
        "[--openai.NAME VALUE ...]",
        f"\n{ABOUT[command]}",
        f"\nFor example:\n{textwrap.indent(EXAMPLES[command], '    ')}",
    ]
    shown = [option for option in options if everything or option.brief]
    for group, members in groupby(shown, lambda option: option.group):
        head.append(f"\n{group}:")
        head += [entry(option, command, everything=everything) for option in members]
    head.append("\nAll else:")
    head += [f"  {name:{_COLUMN - 2}}{about}" for name, about in GENERAL.items()]
    if len(shown) < len(options):
        left = len(options) - len(shown)
        head.append(
            f"\nIn brackets: the default, and what a value may be. --help-all has {left} more."
        )
    return "\n".join(head)


def entry(option: Option, command: str, *, everything: bool) -> str:
    """Write an option: its name, what it does, its default in this command, its limits."""
    default = option.defaults.get(command, option.default)
    brackets = f"[{'; '.join(filter(None, (default, option.limits())))}]"
    name = f"  --{option.name}"
    if not everything:
        room = max(24, _WIDTH - _COLUMN - len(brackets) - 1)
        clause = brief(option.about).partition(":" if option.choices else "\n")[0]
        about = textwrap.shorten(clause, room, placeholder=" …")
        return f"{name:{_COLUMN}}{about} {brackets}"
    lines = textwrap.wrap(f"{option.about} {brackets}", _WIDTH - _COLUMN)
    first = name if len(name) < _COLUMN else f"{name}\n{'':{_COLUMN}}".rstrip("\n")
    return f"{first:{_COLUMN}}" + f"\n{'':{_COLUMN}}".join(lines)


def brief(about: str) -> str:
    """Take the first clause of what is said of an option, without parentheses.

    Example:
        >>> brief("Tasks to leave out; wins over include_tasks.")
        'Tasks to leave out'
    """
    for end in (";", ". "):
        about = _PARENTHESIS.sub("", about).partition(end)[0]
    return about.rstrip(".")
