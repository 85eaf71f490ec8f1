"""Settings in Python are checked as those of the command line are."""

from pathlib import Path
from typing import Any

import pytest
from atroposlib.envs.base import APIServerConfig
from atroposlib.envs.server_handling.server_manager import ServerBaseline
from pydantic import ValidationError

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.atropos.config import ServerConfig, server_list
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.settings import sections
from reasoning_gym_environment.util.settings_file import read_file


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("score_mode", "Binary", "must be one of partial, library, threshold, binary"),
        ("complexity_mode", "Curriculum", "must be one of random, curriculum, fixed"),
        ("temperature", -1, "must be a number ≥ 0, got -1"),
        ("solved_threshold", 7, "must be a number > 0 and ≤ 1, got 7"),
        ("dump_rollouts", "perhaps", "must be true or false, got 'perhaps'"),
        ("max_token_length", 1, "must be an integer ≥ 2, got 1"),
        ("group_size", 0, "must be an integer ≥ 1, got 0"),
        ("scor_mode", "binary", "did you mean score_mode"),
    ],
)
def test_an_assignment_is_checked_when_it_is_made(
    name: str, value: Any, said: str
) -> None:
    config = ReasoningGymEnvConfig()
    before = config.model_dump()
    with pytest.raises(ConfigurationError, match=said):
        setattr(config, name, value)
    assert config.model_dump() == before


def test_a_call_of_an_earlier_version_loads_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old: dict[str, Any] = {"answer_tolerance": True, "group_size": 8}
    config = ReasoningGymEnvConfig(**old)
    assert config.group_size == 8
    assert [m.split()[0] for m in caplog.messages] == ["answer_tolerance"]


def test_an_assignment_is_read_as_an_option_is() -> None:
    config = ReasoningGymEnvConfig()
    config.group_size = "8"  # type: ignore[assignment]  # as from a form
    config.include_tasks = "gcd, lcm"  # type: ignore[assignment]  # as on the command line
    assert (config.group_size, config.include_tasks) == (8, ["gcd", "lcm"])


def test_settings_are_checked_together_where_the_environment_is_built() -> None:
    config = ReasoningGymEnvConfig(use_wandb=False)
    config.group_size = 64
    config.batch_size = 32  # neither is wrong alone
    said = "batch_size must be ≥ group_size"
    with pytest.raises(ConfigurationError, match=said):
        config.validate_config()
    with pytest.raises(ConfigurationError, match=said):
        ReasoningGymEnv(config, [ServerConfig()])
    config.batch_size = 64
    config.validate_config()
    config.include_tasks.append(5)  # type: ignore[arg-type]  # a list in Python takes anything
    with pytest.raises(ConfigurationError, match="include_tasks must be names"):
        ReasoningGymEnv(config, [ServerConfig()])


def test_another_environments_configuration_is_refused() -> None:
    said = "config must be a ReasoningGymEnvConfig, got ServerConfig"
    with pytest.raises(ConfigurationError, match=said):
        ReasoningGymEnv(ServerConfig(), [ServerConfig()])  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ValidationError, match="batch_size must be ≥ group_size"):
        ReasoningGymEnvConfig(group_size=64, batch_size=32)


@pytest.mark.parametrize(
    "given",
    [
        ServerBaseline(),
        APIServerConfig(server_type="vllm", base_url="http://127.0.0.1:9/v1"),
        [ServerConfig(server_type="vllm")],
    ],
)
def test_config_init_may_return_one_server(given: Any) -> None:
    [server] = server_list(given)
    one = given[0] if isinstance(given, list) else given
    assert {name: getattr(server, name) for name in type(one).model_fields} == dict(one)


def test_no_server_is_the_same_mistake_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("openai: []\n")
    with pytest.raises(ConfigurationError, match="openai is empty: give the settings"):
        read_file(file, sections())
    with pytest.raises(ConfigurationError, match="server_configs is empty"):
        server_list([])
    with pytest.raises(ConfigurationError, match="server_configs is empty"):
        ReasoningGymEnv(ReasoningGymEnvConfig(use_wandb=False), [])


def test_settings_of_an_environment_that_is_set_up_serve_another_one() -> None:
    config = ReasoningGymEnvConfig(include_tasks=["gcd"])
    assert config.changeable() is config
    config.freeze()
    with pytest.raises(ConfigurationError, match="group_size can't become 4"):
        config.group_size = 4
    config.debug_logging = False  # takes effect at any time
    other = config.changeable()
    assert other.model_dump() == config.model_dump()
    other.group_size = 4
    other.include_tasks.append("lcm")
    assert config.group_size == 8
    assert config.include_tasks == ["gcd"]
