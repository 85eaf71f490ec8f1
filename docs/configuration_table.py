"""Writes the tables of docs/configuration.md from the settings; `--check` only compares.

python docs/configuration_table.py [--check]
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from page_table import write_table

from reasoning_gym_environment.settings import (
    COMMAND_DEFAULTS,
    Option,
    default_settings,
    list_options,
)
from reasoning_gym_environment.util.command_line import choices_of, limits

PAGE = Path(__file__).with_name("configuration.md")

BY_COMMAND = {
    command: {
        option.name: option.default
        for option in list_options(default_settings(command))
    }
    for command in COMMAND_DEFAULTS
}


def line(option: Option) -> str:
    """Return a line of a table; defaults of single commands follow the common one."""
    defaults = {command: names[option.name] for command, names in BY_COMMAND.items()}
    own = [
        f"{command}: `{o}`" for command, o in defaults.items() if o != option.default
    ]
    common = [f"`{option.default}`"] if option.default != "unset" else []
    choices = choices_of(option.field)
    told = choices and all(choice in option.about for choice in choices)
    valid = "" if told else limits(option.field)
    about = f"{option.about} {valid and f'*{valid}*'}".strip().replace("<", "&lt;")
    names = filter(None, (option.name.removeprefix("env."), option.alias))
    shown = ", ".join(f"`{name}`" for name in names)
    return f"| {shown} | {', '.join(common + own)} | {about}"


def tables() -> str:
    """Return a table for each heading of --help-all."""
    lines = []
    for heading, members in groupby(list_options(), lambda option: option.heading):
        head = [f"### {heading}", "", "| setting | default | meaning", "|---|---|---"]
        lines += [*head, *map(line, members), ""]
    return "\n".join(lines)


def main() -> int | str:
    return write_table(PAGE, "configuration", tables())


if __name__ == "__main__":
    sys.exit(main())
