"""The help of every command starts with how to call it."""

import pytest

from reasoning_gym_environment.cli import COMMANDS, SERVING, main


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {*SERVING}))
def test_usage_names_the_program_and_the_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"usage: reasoning-gym-environment {command} " in capsys.readouterr().out
