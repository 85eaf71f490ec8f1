"""When a training ends: by our count of steps, and by the trainer's."""

from typing import Any

import pytest

from reasoning_gym_environment.atropos.config import ReasoningGymEnvConfig
from reasoning_gym_environment.atropos.state import RunState
from reasoning_gym_environment.atropos.trainer_api import Registration
from reasoning_gym_environment.errors import ConfigurationError


def begun(*, trainer_steps: int, **settings: Any) -> RunState:
    """A run that has registered at an API whose trainer says so many steps."""
    state = RunState(ReasoningGymEnvConfig(group_size=4, **settings), "run")
    registration = Registration(
        env_id=0,
        name="env_0",
        checkpoint_dir="folder",
        checkpoint_interval=0,
        starting_step=0,
        trainer_steps=trainer_steps,
        batch_size=8,
        max_token_len=-1,
    )
    state.begin(registration)
    state.require_fitting_limits()
    return state


@pytest.mark.parametrize(
    ("settings", "trainer_steps", "total_steps"),
    [
        ({}, 6, 6),
        ({"total_steps": -1}, 6, 6),
        ({"total_steps": 1000}, 6, 6),
        ({"total_steps": 4}, 6, 4),
        ({"total_steps": 4}, -1, 4),
        ({"total_steps": 0}, 6, 0),
    ],
)
def test_the_smaller_count_of_steps_ends_the_training(
    settings: dict[str, Any], trainer_steps: int, total_steps: int
) -> None:
    state = begun(trainer_steps=trainer_steps, **settings)
    assert state.total_steps == total_steps
    waiting = {"queue_size": 2, "current_step": max(0, total_steps - 1)}
    state.take_status(waiting)
    # what waits in the queue has not been handed out
    assert state.is_over() == (total_steps == 0)
    state.take_status({**waiting, "current_step": total_steps})
    assert state.is_over()


def test_a_training_that_nobody_ends_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"set --env\.total_steps"):
        begun(trainer_steps=-1)
