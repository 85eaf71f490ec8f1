"""What a command makes of its options, without running it."""

from reasoning_gym_environment.atropos.launch import build_parser
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
    return read_given(
        build_parser("serve", list_options()).parse(arguments), sections()
    )


def checked(command: str, *arguments: str) -> Settings:
    read = given(*arguments)
    defaults = default_settings(command, given=read.env)
    settings = build_settings(read, defaults)
    check_start(command, settings)
    return settings
