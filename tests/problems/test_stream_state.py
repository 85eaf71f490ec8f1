"""Validation of a checkpoint's stream state; errors have the path of the invalid value."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import places, with_value

from reasoning_gym_environment.problems.levels import Curriculum
from reasoning_gym_environment.problems.sampler import Sampler
from reasoning_gym_environment.problems.training import require_stream_state

LADDERS = {
    task: tuple({"max_value": n} for n in range(height))
    for task, height in (("gcd", 3), ("lcm", 5))
}


def sampler(seed: int = 1, replica: str = "env_0") -> Sampler:
    levels = Curriculum(LADDERS)
    weights = dict.fromkeys(LADDERS, 1.0)
    return Sampler(
        weights, run_seed=seed, replica=replica, levels=levels, by_signal=True
    )


def state() -> dict[str, Any]:
    """Return the state, after a round trip through JSON, of a stream with recorded groups."""
    stream = sampler()
    for number in range(30):
        recipe = stream.next_recipe()
        stream.report_result(recipe, solved=number % 5, scored=4)
    stream.cap("lcm", 2)
    stored = {
        "sampler": stream.state_dict(),
        "ahead": [stream.next_recipe().to_json()],
        "max_token_length": 512,
        "prompt_room": [["gcd", 1, True, 20], ["lcm", 3, False, 10]],
    }
    whole: dict[str, Any] = json.loads(json.dumps(stored))
    return whole


STATE = state()
TASK, *_, SINCE = STATE["sampler"]["signal"][0]
CAPS = ("sampler", "levels", "caps")
GCD, TASKS = ("sampler", "levels", "tasks", "gcd"), "sampler.levels.tasks[...]"
SIGNAL_AHEAD = f"signal of {TASK!r} is from draw {SINCE}, after the last, 0"


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    other: dict[str, Any] = with_value(STATE, path, value)
    return other


def test_stored_states_are_valid() -> None:
    require_stream_state(STATE)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("sampler",), None, "sampler must be object, got None"),
        (("sampler", "draw"), "12", "sampler.draw must be int, got '12'"),
        (("sampler", "draw"), True, "sampler.draw must be int, got True"),
        (("sampler", "draw"), 3.0, "sampler.draw must be int, got 3.0"),
        (("sampler", "draw"), -1, "sampler.draw must be int >= 0, got -1"),
        (("sampler", "draw"), 0, SIGNAL_AHEAD),
        (("sampler", "replica"), 7, "sampler.replica must be str, got 7"),
        (GCD, {}, f"{TASKS}: object missing required field `height`"),
        (
            (*GCD, "position"),
            float("nan"),
            f"{TASKS}.position: expected `float` >= 0.0",
        ),
        (
            (*GCD, "evidence"),
            [[1, 2]],
            f"{TASKS}.evidence[0]: expected `array` of length 3, got 2",
        ),
        (
            (*CAPS, "lcm", "height"),
            0,
            "sampler.levels.caps[...].height: expected `int` >= 1",
        ),
        (("ahead",), {}, "ahead must be array, got {}"),
        (("prompt_room",), [["gcd", 1, 1, 1]], "prompt_room[0][2] must be bool, got 1"),
        (
            ("max_token_length",),
            2**60,
            f"max_token_length must be int <= {2**53}, got {2**60}",
        ),
        (("max_token_length",), None, "max_token_length must be int, got None"),
    ],
)
def test_an_invalid_state_is_refused_with_its_value(
    path: tuple[Any, ...], value: Any, said: str
) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole sentence is below
        require_stream_state(changed(path, value))
    assert str(raised.value) == said


PARTS = "sampler ahead prompt_room run_seed replica draw levels signal memory caps"


@pytest.mark.parametrize("key", PARTS.split())
def test_a_state_with_a_missing_part_is_refused(key: str) -> None:
    lacks = json.loads(json.dumps(STATE).replace(f'"{key}":', '"other":', 1))
    with pytest.raises(ValueError, match=f"missing required field `{key}`"):
        require_stream_state(lacks)


NUMBERS = (
    st.integers()
    | st.floats()
    | st.sampled_from([2**53, 10**400, -1, 0.5, 1e308, 5e-324])
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner)
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_a_valid_state_or_a_value_error(value: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"the value must be object|object missing required field|must be ",
    ):
        require_stream_state(value)


@given(st.sampled_from(sorted(places(STATE), key=repr)), JSON)
@settings(max_examples=400, deadline=None)
def test_a_valid_state_can_be_continued(path: tuple[Any, ...], value: Any) -> None:
    other = changed(path, value)
    try:
        require_stream_state(other)
        stream = sampler()
        stream.require_own(other["sampler"])
    except ValueError:
        return
    stream.load_state_dict(other["sampler"])
    for number in range(20):
        stream.report_result(stream.next_recipe(), solved=number % 5, scored=4)
    json.dumps(stream.state_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (sampler(seed=7), "the state's seed is 7, but this run's is 1"),
        (
            sampler(replica="env_3"),
            "the state's replica is 'env_3', but this run's is 'env_0'",
        ),
    ],
)
def test_the_state_of_another_runs_stream_is_refused(other: Sampler, said: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole sentence is below
        sampler().require_own(other.state_dict())
    assert str(raised.value) == said
