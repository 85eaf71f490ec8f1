"""Writes the tables of docs/configuration.md from the settings; `--check` only compares.

python docs/configuration_table.py [--check]
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from reasoning_gym_environment.settings import (
    COMMAND_DEFAULTS,
    Option,
    default_settings,
    list_options,
)
from reasoning_gym_environment.util.command_line import limits

PAGE = Path(__file__).with_name("configuration.md")
BEGIN, END = "<!-- configuration table: begin -->", "<!-- configuration table: end -->"

BY_COMMAND = {
    command: {option.name: option.default for option in list_options(default_settings(command))}
    for command in COMMAND_DEFAULTS
}


def line(option: Option) -> str:
    """Return a line of a table; defaults of single commands follow the common one."""
    others = {command: defaults[option.name] for command, defaults in BY_COMMAND.items()}
    differing = [f"{command}: `{o}`" for command, o in others.items() if o != option.default]
    valid = limits(option.field)
    about = " ".join(filter(None, (option.about, valid and f"*{valid[0].upper()}{valid[1:]}.*")))
    names = filter(None, (option.name.removeprefix("env."), option.also))
    shown = ", ".join(f"`{name}`" for name in names)
    defaults = ", ".join([f"`{option.default}`", *differing])
    return f"| {shown} | {defaults} | {about.replace('<', '&lt;')} |"


def tables() -> str:
    """Return a table for each heading of --help-all."""
    lines = []
    for heading, members in groupby(list_options(), lambda option: option.heading):
        head = [f"### {heading}", "", "| setting | default | meaning |", "| --- | --- | --- |"]
        lines += [*head, *map(line, members), ""]
    return "\n".join(lines)


def updated(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main() -> int | str:
    text = PAGE.read_text()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(updated(text))
        return 0
    return 0 if updated(text) == text else f"{PAGE.name} is out of date; run make docs"


if __name__ == "__main__":
    sys.exit(main())
