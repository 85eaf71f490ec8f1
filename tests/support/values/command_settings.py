"""What a command makes of its options, without running it."""

from argparse import Namespace
from collections.abc import Sequence

from reasoning_gym_environment.atropos.launch import build_parser
from reasoning_gym_environment.atropos.models import settings_of_models
from reasoning_gym_environment.settings import (
    Settings,
    build_settings,
    check_start,
    default_settings,
    list_options,
    sections,
)
from reasoning_gym_environment.util.command_line import Given
from reasoning_gym_environment.util.settings_file import read_given


def given(*arguments: str) -> Given:
    return read_given(_parsed(arguments), sections())


def checked(command: str, *arguments: str) -> Settings:
    """The settings of a command; those of the last model, if there are several."""
    read = given(*arguments)
    built = build_settings(read, default_settings(command, given=read.env))
    of_each = settings_of_models(command, _parsed(arguments), built)
    for settings in of_each:
        check_start(command, settings)
    return of_each[-1]


def _parsed(arguments: Sequence[str]) -> Namespace:
    return build_parser("serve", list_options()).parse(arguments)
