"""Writes the table of docs/configuration.md from the config class; `--check` only compares.

python docs/configuration_table.py [--check]
"""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

from atroposlib.envs.base import BaseEnvConfig

from reasoning_gym_environment.config import ReasoningGymEnvConfig, default_config

PAGE = Path(__file__).with_name("configuration.md")
BEGIN, END = "<!-- configuration table: begin -->", "<!-- configuration table: end -->"


def row(name: str, default: object, description: str) -> str:
    shown = default.value if isinstance(default, Enum) else default
    return f"| `{name}` | `{shown!r}` | {description} |"


def table() -> str:
    """Our own settings, then those of Atropos whose default we change."""
    fields = ReasoningGymEnvConfig.model_fields
    inherited = BaseEnvConfig.model_fields
    own = [
        row(name, field.default, field.description or "")
        for name, field in fields.items()
        if name not in inherited
    ]
    started_with = default_config()
    changed = [
        row(name, getattr(started_with, name), field.description or "")
        for name, field in inherited.items()
        if getattr(started_with, name) != field.default
    ]
    header = "| setting | default | meaning |\n| --- | --- | --- |"
    return "\n".join(
        [
            header,
            *own,
            "",
            "Atropos's own settings, where the command line starts from another default:",
            "",
            header,
            *changed,
        ]
    )


def updated(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int | str:
    text = PAGE.read_text()
    if "--check" in sys.argv[1:]:
        return 0 if updated(text) == text else "docs/configuration.md is out of date: make docs"
    PAGE.write_text(updated(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
