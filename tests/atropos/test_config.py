"""The snapshot of Atropos's own options must equal its fields."""

import json
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from atroposlib.envs.base import APIServerConfig, BaseEnvConfig
from atroposlib.envs.server_handling.server_manager import ServerManagerConfig

from reasoning_gym_environment.atropos import config
from reasoning_gym_environment.atropos.config import (
    ReasoningGymEnvConfig,
    ServerConfig,
    as_config,
)
from reasoning_gym_environment.inference.servers import SERVER_TYPES
from reasoning_gym_environment.settings import (
    RETIRED_OPTIONS,
    EnvironmentSettings,
    RunFlags,
    ServerSettings,
)

SNAPSHOT = json.loads(Path(config.__file__).with_name("fields.json").read_text())


def kinds(annotation: Any) -> set[Any]:
    """Return the types of an annotation, without its validators."""
    if get_origin(annotation) is Annotated:
        return kinds(get_args(annotation)[0])
    return {kind for one in get_args(annotation) for kind in kinds(one)} or {annotation}


def test_atroposs_options_have_its_names_types_defaults_and_bounds() -> None:
    assert SNAPSHOT["version"] == version("atroposlib")
    # An enum; checked in a constructor; may have more choices, see below.
    of_other_types = {"eval_handling", "reasoning_effort", "server_type"}
    for section, theirs, ours in (
        ("env", BaseEnvConfig, EnvironmentSettings),
        ("openai", APIServerConfig, ServerSettings),
    ):
        ignored = {n for n, one in RETIRED_OPTIONS[section].items() if one.ignored}
        ignored -= {"answer_tolerance"}  # an earlier version's, and not Atropos's
        assert SNAPSHOT[section].keys() | ignored == theirs.model_fields.keys()
        assert not SNAPSHOT[section].keys() & ignored
        for name, field in SNAPSHOT[section].items():
            their, our = theirs.model_fields[name], ours.model_fields[name]
            if name not in of_other_types:
                assert kinds(our.annotation) == kinds(their.annotation), name
            default = (
                their.default.value
                if isinstance(their.default, Enum)
                else their.default
            )
            assert field.get("upstream_default", field["default"]) == default, name
            assert field["default"] == our.default, name
            assert {*map(repr, their.metadata)} <= {*map(repr, our.metadata)}, name


def test_every_server_type_can_be_chosen_and_those_of_atropos_are_among_them() -> None:
    choices = kinds(ServerSettings.model_fields["server_type"].annotation)
    assert choices == SERVER_TYPES.keys(), "name the same types in atropos/fields.json"
    assert choices >= kinds(APIServerConfig.model_fields["server_type"].annotation)


def test_nothing_else_is_taken_for_atroposs() -> None:
    for ours, theirs, more in (
        (ServerSettings, APIServerConfig, {"api_key_var"}),
        (RunFlags, ServerManagerConfig, {"limit", "price", "suite"}),
    ):
        assert ours.model_fields.keys() - theirs.model_fields.keys() == more


def test_atropos_gets_the_same_settings_in_its_own_classes() -> None:
    assert (
        ReasoningGymEnvConfig.model_fields.keys()
        == EnvironmentSettings.model_fields.keys() | {"custom_thinking_prompt"}
    )
    assert issubclass(ReasoningGymEnvConfig, BaseEnvConfig)
    assert issubclass(ServerConfig, APIServerConfig)
    given = {"group_size": 3, "eval_handling": "LIMIT_TRAIN"}
    settings = as_config(EnvironmentSettings(**given), ReasoningGymEnvConfig)
    assert settings == ReasoningGymEnvConfig(**given)
