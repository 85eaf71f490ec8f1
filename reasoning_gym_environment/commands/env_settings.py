"""Settings of `serve` for commands that ask no server: `--env.NAME`, and a file below them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FixableError
from ..util.command_line import read_file
from ..util.validation import describe_validation
from .options import known_of, read_options

if TYPE_CHECKING:
    from ..config import ReasoningGymEnvConfig  # it brings Atropos along, which takes seconds


def add_settings(parser: ArgumentParser, names: Sequence[str]) -> None:
    """Let a command take a file of settings, and those of the environment with these names."""
    parser.add_argument("--config", metavar="FILE.yaml", type=Path, help="settings, as for serve")
    known = {option.name: option for option in read_options()}
    for name in names:
        option = known[f"env.{name}"]
        about = f"{option.about} (default: {option.default})".replace("%", "%%")
        parser.add_argument(f"--{option.name}", metavar="VALUE", help=about)


def build_config(options: Namespace, names: Sequence[str]) -> ReasoningGymEnvConfig:
    """Put the file's `env` section over the defaults of `serve`, and the options over it.

    Raises:
        FixableError: the file can't be read, or a value can't be used.
    """
    from pydantic import ValidationError

    from ..atropos.defaults import default_config
    from ..config import ReasoningGymEnvConfig

    settings = default_config().model_dump()
    if options.config:
        settings |= env_section(options.config)
    given = {name: getattr(options, f"env.{name}") for name in names}
    settings |= {name: value for name, value in given.items() if value is not None}
    try:
        return ReasoningGymEnvConfig(**settings)
    except ValidationError as error:
        raise FixableError(describe_validation(error)) from error


def env_section(file: Path) -> Mapping[str, Any]:
    """Read the environment's settings in a file; raises FixableError where there are none."""
    try:
        env = read_file(file, known_of(read_options())).env
    except FixableError as error:
        raise FixableError(f"{file} can't be read as settings: {error}") from error
    if not env:
        raise FixableError(f"{file} can't be read as settings: it has no `env` section")
    return env
