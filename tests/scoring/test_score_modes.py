"""What the score modes make of partial credit."""

import pytest

from reasoning_gym_environment.records import UPSTREAM_THRESHOLD, Status, Verdict
from reasoning_gym_environment.sandbox._protocol import FormScores, Outcome, to_verdict
from reasoning_gym_environment.scoring.grading import ScoreMode, shape_rewards


def verdict_on(raw: float, *, solved_from: float = UPSTREAM_THRESHOLD) -> Verdict:
    """Return the verdict on an answer without a tagged form."""
    return to_verdict(FormScores(outcome=Outcome.SCORED, raw=raw), solved_from=solved_from)


@pytest.mark.parametrize(
    ("mode", "rewards"),
    [
        ("partial", [0.0, 0.3, 0.6, 1.0]),
        ("threshold", [0.0, 0.0, 0.6, 1.0]),
        ("binary", [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_a_mode_decides_what_partial_credit_is_worth(mode: ScoreMode, rewards: list[float]) -> None:
    verdicts = [verdict_on(score) for score in (0.0, 0.3, 0.6, 1.0)]
    shaped = shape_rewards(verdicts, [1] * 4, max_length=100, penalty_start=0.75, mode=mode)
    assert [reward.value for reward in shaped] == rewards
    assert [reward.score for reward in shaped] == [0.0, 0.3, 0.6, 1.0]


def test_an_all_wrong_group_with_partial_credit_has_no_signal_in_threshold_mode() -> None:
    verdicts = [verdict_on(score) for score in (0.01, 0.05, 0.2)]
    shaped = shape_rewards(verdicts, [1] * 3, max_length=100, penalty_start=0.75, mode="threshold")
    assert {reward.value for reward in shaped} == {0.0}


def test_the_solved_threshold_decides_the_status() -> None:
    assert verdict_on(0.6, solved_from=0.7).status is Status.WRONG
    assert verdict_on(0.7, solved_from=0.7).status is Status.SOLVED


def test_an_unscored_rollout_gets_the_mean_of_what_the_mode_makes_of_the_others() -> None:
    unscored = Verdict(score=None, status=Status.UNSCORED)
    verdicts = [verdict_on(1.0), verdict_on(0.4), unscored]
    shaped = shape_rewards(verdicts, [1] * 3, max_length=100, penalty_start=0.75, mode="binary")
    assert [reward.value for reward in shaped] == [1.0, 0.0, 0.5]
