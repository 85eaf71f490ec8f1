"""What a checkpoint holds is a stream's state, or is refused with the value that can't be."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import places, with_value

from reasoning_gym_environment.problems.curriculum import Curriculum
from reasoning_gym_environment.problems.levels import PromptRoom
from reasoning_gym_environment.problems.sampler import Sampler
from reasoning_gym_environment.problems.stored_state import require_state

LADDERS = {"gcd": ({}, {}, {}), "lcm": ({}, {}, {}, {}, {})}


def sampler(seed: int = 1, replica: str = "env_0") -> Sampler:
    levels = Curriculum(LADDERS)
    weights = dict.fromkeys(LADDERS, 1.0)
    return Sampler(weights, run_seed=seed, replica=replica, levels=levels, by_signal=True)


def state() -> dict[str, Any]:
    """The state of a stream that has learnt, as JSON gives it back."""
    stream, room = sampler(), PromptRoom()
    for number in range(30):
        recipe = stream.next_recipe()
        room.too_long(recipe.task, recipe.level or 0, fits=bool(number % 3))
        stream.record(recipe, solved=number % 5, scored=4)
    stream.cap("lcm", 2)
    stored = {
        "sampler": stream.state_dict(),
        "ahead": [stream.next_recipe().to_json()],
        "max_token_length": 512,
        "prompt_room": room.state_dict(),
    }
    whole: dict[str, Any] = json.loads(json.dumps(stored))
    return whole


STATE = state()
TASK, *_, SINCE = STATE["sampler"]["signal"][0]
SIGNAL_AHEAD = f"signal of {TASK!r} is of draw {SINCE}, after draw 0"


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    other: dict[str, Any] = with_value(STATE, path, value)
    return other


def test_what_a_stream_stored_is_taken() -> None:
    require_state(STATE)
    require_state({**STATE, "sampler": {"run_seed": -3, "replica": "", "draw": 0}})


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("sampler",), None, "sampler is None, which is no JSON object"),
        (("sampler", "draw"), "12", "draw is '12', which is no whole number from 0"),
        (("sampler", "draw"), True, "draw is True, which is no whole number from 0"),
        (("sampler", "draw"), -1, "draw is -1, which is no whole number from 0"),
        (("sampler", "draw"), 0, SIGNAL_AHEAD),
        (("sampler", "replica"), 7, "replica is 7, which is no text"),
        (("sampler", "levels", "tasks", "gcd"), {}, "'gcd' lacks height"),
        (
            ("sampler", "levels", "tasks", "gcd", "position"),
            float("nan"),
            "position is nan, which is no number from 0",
        ),
        (
            ("sampler", "levels", "tasks", "gcd", "evidence"),
            [[1, 2]],
            "a part of evidence is [1, 2], which has not 3 values",
        ),
        (
            ("sampler", "levels", "caps", "lcm", "height"),
            0,
            "height is 0, which is no whole number from 1",
        ),
        (("ahead",), {}, "ahead is {}, which is no list"),
        (
            ("prompt_room",),
            [["gcd", 1, 1, 1]],
            "a part of prompt_room is 1, which is no truth value",
        ),
        (
            ("max_token_length",),
            10**300,
            "max_token_length is a number of 997 bits, which is no whole number from 0",
        ),
    ],
)
def test_what_is_no_state_is_refused_with_its_value(
    path: tuple[Any, ...], value: Any, said: str
) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole sentence is below
        require_state(changed(path, value))
    assert str(raised.value) == said


@pytest.mark.parametrize("key", ["sampler", "ahead", "prompt_room"])
def test_a_state_without_a_part_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"the stream's state lacks {key}"):
        require_state({name: part for name, part in STATE.items() if name != key})


NUMBERS = st.integers() | st.floats() | st.sampled_from([2**53, 10**400, -1, 0.5, 1e308, 5e-324])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_a_state_or_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match="the stream's state"):
        require_state(value)


@given(st.sampled_from(sorted(places(STATE), key=repr)), JSON)
@settings(max_examples=400, deadline=None)
def test_a_state_that_is_taken_can_be_drawn_from_and_learnt_with(
    path: tuple[Any, ...], value: Any
) -> None:
    other = changed(path, value)
    try:
        require_state(other)
        stream = sampler()
        stream.require_own(other["sampler"])
    except ValueError:
        return
    stream.load_state_dict(other["sampler"])
    PromptRoom().load_state_dict(other["prompt_room"])
    for number in range(20):
        stream.record(stream.next_recipe(), solved=number % 5, scored=4)
    json.dumps(stream.state_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (sampler(seed=7), "it is of a run with seed 7, this one's is 1"),
        (sampler(replica="env_3"), "it is of replica 'env_3', this one is 'env_0'"),
    ],
)
def test_the_state_of_another_runs_stream_is_refused(other: Sampler, said: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole sentence is below
        sampler().require_own(other.state_dict())
    assert str(raised.value) == said
