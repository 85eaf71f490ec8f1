"""The dual format, the length penalty, the score modes, and whether a group teaches."""

import math
import statistics
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reasoning_gym_environment.records import (
    ATROPOS_SOLVED_SCORE,
    Reward,
    Status,
    Verdict,
)
from reasoning_gym_environment.sandbox._protocol import FormScores, Outcome, to_verdict
from reasoning_gym_environment.scoring.grading import (
    ScoreMode,
    length_factor,
    shape_rewards,
    signal,
)

MAX_LENGTH = 1000
START = 0.75

scores = st.floats(0.0, 1.0)
raw_scores = st.floats(allow_nan=True, allow_infinity=True)
starts = st.floats(0.0, 1.0, exclude_max=True)
max_lengths = st.integers(1, 200_000)
lengths = st.integers(0, 400_000)


def scored(score: float) -> Verdict:
    status = Status.SOLVED if score >= ATROPOS_SOLVED_SCORE else Status.WRONG
    return Verdict(score=score, status=status)


UNSCORED = Verdict(score=None, status=Status.UNSCORED)

verdicts = scores.map(scored)
solved_verdicts = st.floats(ATROPOS_SOLVED_SCORE, 1.0).map(scored)
wrong_verdicts = st.floats(0.0, ATROPOS_SOLVED_SCORE, exclude_max=True).map(scored)


def groups(
    members: st.SearchStrategy[Verdict],
) -> st.SearchStrategy[list[tuple[Verdict, int]]]:
    """Groups of one to eight verdicts, each with the length of its rollout."""
    return st.lists(
        st.tuples(members, st.integers(1, 2 * MAX_LENGTH)), min_size=1, max_size=8
    )


def rewards_of(
    group: list[tuple[Verdict, int]], mode: ScoreMode = "partial"
) -> list[Reward]:
    verdicts, lengths = map(list, zip(*group, strict=True))
    return shape_rewards(
        verdicts, lengths, max_length=MAX_LENGTH, penalty_start=START, mode=mode
    )


def shape(group: list[tuple[Verdict, int]], mode: ScoreMode = "partial") -> list[float]:
    return [reward.value for reward in rewards_of(group, mode)]


def verdict_on(raw: float, tagged: float = math.nan, **rest: Any) -> Verdict:
    """Return the verdict on scored forms."""
    return to_verdict(
        FormScores(outcome=Outcome.SCORED, raw=raw, tagged=tagged, **rest)
    )


class TestForms:
    @given(raw_scores, raw_scores)
    def test_the_higher_form_wins_within_bounds(
        self, raw: float, tagged: float
    ) -> None:
        known = [s for s in (raw, tagged) if not math.isnan(s)]
        expected = min(1.0, max([0.0, *known]))
        assert verdict_on(raw, tagged).score == expected
        assert verdict_on(tagged, raw).score == expected

    @given(raw_scores, raw_scores)
    def test_each_form_is_kept_clipped_and_a_missing_one_as_none(
        self, raw: float, tagged: float
    ) -> None:
        verdict = verdict_on(raw, tagged)
        for given_score, kept in (
            (raw, verdict.raw_score),
            (tagged, verdict.tagged_score),
        ):
            if math.isnan(given_score):
                assert kept is None
            else:
                assert kept == sorted((0.0, given_score, 1.0))[1]

    def test_an_answer_is_solved_at_full_credit_or_from_a_threshold(self) -> None:
        assert {verdict_on(score).status for score in (1.0000000000000002, 1.0)} == {
            Status.SOLVED
        }
        wrong = (math.nextafter(1.0, 0.0), 0.5, 0.01, 0.0)
        assert {verdict_on(score).status for score in wrong} == {Status.WRONG}
        for score, status in ((0.6, Status.WRONG), (0.7, Status.SOLVED)):
            found = FormScores(outcome=Outcome.SCORED, raw=score)
            assert to_verdict(found, solved_from=0.7).status is status

    @given(scores, st.integers(1, 2))
    def test_an_error_is_the_status_only_of_an_answer_that_earned_nothing(
        self, score: float, errors: int
    ) -> None:
        verdict = verdict_on(score, errors=errors)
        assert (verdict.status is Status.VERIFIER_ERROR) == (score == 0.0)
        assert verdict.errors == errors

    def test_an_answer_both_of_whose_forms_raised_scores_nothing(self) -> None:
        verdict = verdict_on(math.nan, errors=2, seconds=0.25)
        assert verdict == Verdict(
            score=0.0, status=Status.VERIFIER_ERROR, seconds=0.25, errors=2
        )


class TestLengthFactor:
    @given(lengths, max_lengths, starts)
    def test_it_is_a_share(self, length: int, max_length: int, start: float) -> None:
        assert 0.0 <= length_factor(length, max_length, start) <= 1.0

    @given(lengths, lengths, max_lengths, starts)
    def test_a_longer_rollout_never_keeps_more(
        self, one: int, other: int, max_length: int, start: float
    ) -> None:
        short, long = sorted((one, other))
        assert length_factor(short, max_length, start) >= length_factor(
            long, max_length, start
        )

    @given(st.floats(0.0, 1.0), max_lengths, starts)
    def test_nothing_is_taken_up_to_the_start(
        self, share: float, max_length: int, start: float
    ) -> None:
        length = math.floor(share * start * max_length)
        assert length_factor(length, max_length, start) == 1.0

    @given(st.integers(0, 400_000), max_lengths, starts)
    def test_nothing_is_left_from_the_maximum_on(
        self, excess: int, max_length: int, start: float
    ) -> None:
        assert length_factor(max_length + excess, max_length, start) == 0.0

    @given(st.integers(1, 50_000), st.floats(0.0, 1.0))
    def test_it_falls_linearly_in_between(self, quarter: int, share: float) -> None:
        length = 3 * quarter + math.floor(share * quarter)
        factor = length_factor(length, 4 * quarter, 0.75)
        assert factor == pytest.approx((4 * quarter - length) / quarter)


class TestShapeRewards:
    @given(groups(verdicts | st.just(UNSCORED)))
    def test_every_rollout_has_a_reward_in_its_bounds(
        self, group: list[tuple[Verdict, int]]
    ) -> None:
        rewards = rewards_of(group)
        assert len(rewards) == len(group)
        assert all(0.0 <= reward.value <= 1.0 for reward in rewards)

    @given(groups(verdicts | st.just(UNSCORED)), st.randoms(use_true_random=False))
    def test_a_rollouts_reward_does_not_depend_on_its_place(
        self, group: list[tuple[Verdict, int]], random: Random
    ) -> None:
        order = list(range(len(group)))
        random.shuffle(order)
        rewards = shape(group)
        assert shape([group[i] for i in order]) == pytest.approx(
            [rewards[i] for i in order]
        )

    @given(groups(solved_verdicts))
    def test_where_all_are_solved_length_costs(
        self, group: list[tuple[Verdict, int]]
    ) -> None:
        assert shape(group) == [
            verdict.score * length_factor(length, MAX_LENGTH, START)
            for verdict, length in group
            if verdict.score is not None
        ]

    @given(groups(solved_verdicts), wrong_verdicts, st.integers(0, 8))
    def test_one_wrong_answer_lifts_the_penalty_from_all(
        self, group: list[tuple[Verdict, int]], wrong: Verdict, place: int
    ) -> None:
        group.insert(place, (wrong, MAX_LENGTH))
        assert shape(group) == [verdict.score for verdict, _ in group]

    @given(groups(solved_verdicts), st.integers(0, 8))
    def test_one_unscored_rollout_lifts_the_penalty_from_all(
        self, group: list[tuple[Verdict, int]], place: int
    ) -> None:
        known = [verdict.score for verdict, _ in group]
        group.insert(place, (UNSCORED, MAX_LENGTH))
        rewards = shape(group)
        del rewards[min(place, len(known))]
        assert rewards == known

    @given(groups(verdicts | st.just(UNSCORED)))
    def test_an_unscored_rollout_gets_the_mean_of_the_others(
        self, group: list[tuple[Verdict, int]]
    ) -> None:
        known = [verdict.score for verdict, _ in group if verdict.score is not None]
        assume(0 < len(known) < len(group))
        for (verdict, _), reward in zip(group, shape(group), strict=True):
            if verdict is UNSCORED:
                assert reward == pytest.approx(statistics.mean(known))

    @pytest.mark.parametrize("score", [0.1, 0.7, 0.9])
    def test_equal_scores_stay_equal_beside_an_unscored_rollout(
        self, score: float
    ) -> None:
        group = [*[(scored(score), 1)] * 7, (UNSCORED, 1)]
        assert shape(group) == [score] * 8

    def test_a_group_about_which_nothing_is_known_has_no_reward(self) -> None:
        assert shape([(UNSCORED, 1), (UNSCORED, 2)]) == [0.0, 0.0]

    @pytest.mark.parametrize(
        ("mode", "expected"),
        [
            ("partial", [0.0, 0.3, 0.6, 1.0]),
            ("threshold", [0.0, 0.0, 0.6, 1.0]),
            ("binary", [0.0, 0.0, 0.0, 1.0]),
        ],
    )
    def test_a_mode_decides_what_partial_credit_is_worth(
        self, mode: ScoreMode, expected: list[float]
    ) -> None:
        group = [(scored(score), 1) for score in (0.0, 0.3, 0.6, 1.0)]
        assert shape(group, mode) == expected

    def test_an_all_wrong_group_with_partial_credit_has_no_signal_in_threshold_mode(
        self,
    ) -> None:
        assert (
            shape([(scored(score), 1) for score in (0.01, 0.05, 0.2)], "threshold")
            == [0.0] * 3
        )

    def test_an_unscored_rollout_gets_the_mean_of_what_the_mode_makes_of_the_others(
        self,
    ) -> None:
        group = [(scored(1.0), 1), (scored(0.4), 1), (UNSCORED, 1)]
        assert shape(group, "binary") == [1.0, 0.0, 0.5]

    def test_verdicts_and_lengths_must_belong_together(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            shape_rewards([scored(1.0)], [], max_length=MAX_LENGTH, penalty_start=START)


def test_a_groups_signal_is_that_of_its_scored_rollouts() -> None:
    for group, expected in (
        *(
            ([1.0, 0.5], "all_solved"),
            ([1.0, 0.4], "mixed"),
            ([0.4, 0.0], "none_solved"),
        ),
        *(
            ([1.0, None], "all_solved"),
            ([0.0, None], "none_solved"),
            ([None, None], None),
        ),
    ):
        verdicts = [UNSCORED if score is None else scored(score) for score in group]
        assert signal(verdicts) == expected, group
