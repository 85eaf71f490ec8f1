"""Conditions on stored rollouts."""

import pytest
from stored_values import attempt, stored

from reasoning_gym_environment.records import Status
from reasoning_gym_environment.storage.rendering import RolloutFilter, parse_condition
from reasoning_gym_environment.storage.rows import StoredGroup

[ROLLOUT] = StoredGroup.from_json(stored(attempt(0.25))).rollouts


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("<0.5", [0.0, 0.25]),
        ("<=0.5", [0.0, 0.25, 0.5]),
        (">.5", [1.0]),
        (" >= 0.5 ", [0.5, 1.0]),
        ("=0", [0.0]),
    ],
)
def test_a_condition_compares(text: str, passes: list[float]) -> None:
    condition = parse_condition(text)
    assert [score for score in (0.0, 0.25, 0.5, 1.0) if condition(score)] == passes


@pytest.mark.parametrize("text", ["", "0.5", "<", "<x", "=<1", "<1e9", "<0.5>", "<-1"])
def test_what_is_no_comparison_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="must be a comparison such as"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        (RolloutFilter(), True),
        (RolloutFilter(tasks=["gcd", "dice"]), True),
        (RolloutFilter(tasks=["dice"]), False),
        (RolloutFilter(statuses=[Status.WRONG]), True),
        (RolloutFilter(statuses=[Status.SOLVED]), False),
        (RolloutFilter(score=parse_condition(">0.2")), True),
        (
            RolloutFilter(tasks=["gcd"], statuses=[Status.WRONG], score=parse_condition(">0.3")),
            False,
        ),
    ],
)
def test_all_conditions_must_hold(wanted: RolloutFilter, passes: bool) -> None:
    assert wanted.matches("gcd", ROLLOUT) is passes
