"""Every command of ours says how it is called."""

import pytest

from reasoning_gym_environment.cli import COMMANDS, main


@pytest.mark.parametrize("command", [name for name, module in COMMANDS.items() if module])
def test_usage_names_the_program_and_the_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"usage: reasoning-gym-environment {command} " in capsys.readouterr().out
