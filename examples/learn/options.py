"""Options of a program: a dataclass whose fields tell what they are."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import field, fields
from typing import Any


def option(default: Any, about: str, choices: Collection[str] | None = None) -> Any:
    """Return a dataclass field with its help, and all values that it may have if they are few."""
    return field(default=default, metadata={"help": about, "choices": choices})


def parser_of(options: type[Any], description: str) -> argparse.ArgumentParser:
    """Return a parser with an option for each field of a dataclass."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for each in fields(options):
        kind = type(each.default)
        parser.add_argument(
            f"--{each.name}", type=kind, default=each.default, **each.metadata
        )
    return parser
