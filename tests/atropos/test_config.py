"""Atropos's own options are repeated without atroposlib; they must equal its fields."""

from enum import Enum
from typing import Annotated, Any, get_args, get_origin

import pytest
from atroposlib.envs.base import APIServerConfig, BaseEnvConfig
from atroposlib.envs.server_handling.server_manager import ServerManagerConfig
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from reasoning_gym_environment.atropos.config import ReasoningGymEnvConfig, ServerConfig
from reasoning_gym_environment.settings import EnvironmentSettings, RunFlags, ServerSettings

NARROWED = {"eval_handling", "reasoning_effort"}
"""Atropos has an enum for one, and checks the other in its constructor."""


OTHER_DEFAULTS = {"wandb_name", "tokenizer_name"}
"""The API registers no nameless environment, and a chat endpoint needs no tokenizer."""


def kinds(annotation: Any) -> set[Any]:
    """Return the types of an annotation, without its validators."""
    if get_origin(annotation) is Annotated:
        return kinds(get_args(annotation)[0])
    return {kind for one in get_args(annotation) for kind in kinds(one)} or {annotation}


def value(default: Any) -> Any:
    return default.value if isinstance(default, Enum) else default


@pytest.mark.parametrize(
    ("theirs", "ours"), [(BaseEnvConfig, EnvironmentSettings), (APIServerConfig, ServerSettings)]
)
def test_atroposs_options_have_its_names_types_defaults_and_bounds(
    theirs: type[BaseModel], ours: type[BaseModel]
) -> None:
    for name, their in theirs.model_fields.items():
        our: FieldInfo = ours.model_fields[name]
        if name not in NARROWED:
            assert kinds(our.annotation) == kinds(their.annotation), name
        if name not in OTHER_DEFAULTS:
            assert value(our.default) == value(their.default), name
        assert {*map(repr, their.metadata)} <= {*map(repr, our.metadata)}, name


def test_nothing_else_is_taken_for_atroposs() -> None:
    assert ServerSettings.model_fields.keys() - APIServerConfig.model_fields.keys() == {
        "api_key_var"
    }
    assert RunFlags.model_fields.keys() <= ServerManagerConfig.model_fields.keys()


def test_atropos_gets_the_same_settings_in_its_own_classes() -> None:
    assert ReasoningGymEnvConfig.model_fields.keys() == EnvironmentSettings.model_fields.keys()
    assert issubclass(ReasoningGymEnvConfig, BaseEnvConfig)
    assert issubclass(ServerConfig, APIServerConfig)
