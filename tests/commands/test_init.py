"""`init` writes configurations that work as they are."""

from pathlib import Path

import pytest

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.atropos.launch import configure
from reasoning_gym_environment.commands.init import ENGINES, FOLDER, main
from reasoning_gym_environment.commands.options import known_of, read_options, require_values
from reasoning_gym_environment.commands.task_names import require_tasks
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.util.command_line import read_given


@pytest.mark.parametrize("engine", ENGINES)
def test_each_configuration_is_read_as_it_is(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "new" / "mine.yaml"
    assert main([engine, "-o", str(file)]) == 0
    options = read_options()
    given = read_given(["--config", str(file)], known_of(options))
    require_values(given, options)
    require_tasks(given.env)
    config, servers = configure(ReasoningGymEnv, "process", given)
    assert config.dump_all_rollouts
    assert {server.server_type for server in servers} == {engine}
    with pytest.raises(FixableError, match="exists; --force replaces it"):
        main([engine, "-o", str(file)])
    assert main([engine, "-o", str(file), "--force"]) == 0


def test_it_is_printed_where_no_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vllm"]) == 0
    assert capsys.readouterr().out == (FOLDER / "vllm.yaml").read_text()


def test_every_configuration_can_be_asked_for() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(ENGINES)
