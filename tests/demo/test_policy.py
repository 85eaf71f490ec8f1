from collections import Counter

import pytest

from reasoning_gym_environment.demo.policy import (
    Sample,
    ScriptedPolicy,
    SimulatedPolicy,
)
from reasoning_gym_environment.records import Problem, Recipe, Status
from reasoning_gym_environment.scoring.extraction import extract_answer

N = 2000


def problem(question: str, oracle: str | None) -> Problem:
    recipe = Recipe(task="gcd", seed=2)
    return Problem(recipe=recipe, question=question, oracle=oracle, entry=b"")


def taught(seed: int = 0) -> SimulatedPolicy:
    policy = SimulatedPolicy(seed)
    policy.learn(problem("e", "42"), 0.8)
    policy.learn(problem("h", "42"), 0.1)
    policy.learn(problem("none", None), 0.8)
    return policy


def share_right(samples: list[Sample]) -> float:
    """Among the completions that hold an answer."""
    answers = [extract_answer(sample.text).answer for sample in samples]
    given = [answer for answer in answers if answer is not None]
    return given.count("42") / len(given)


def test_a_script_is_given_in_turn() -> None:
    policy = ScriptedPolicy(["a", "b", "c"])
    assert [sample.text for sample in policy.sample("?", 2)] == ["a", "b"]
    assert [sample.text for sample in policy.sample("!", 2)] == ["c", "a"]


def test_the_share_of_right_answers_is_as_taught() -> None:
    policy = taught()
    assert share_right(policy.sample("e", N)) == pytest.approx(0.8, abs=0.05)
    assert share_right(policy.sample("h", N)) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("question", ["never taught", "none"])
def test_without_an_oracle_the_answers_are_guesses(question: str) -> None:
    assert share_right(taught().sample(question, N)) < 0.01


def test_a_guess_is_never_the_oracle_by_chance() -> None:
    policy = SimulatedPolicy(0)
    policy.learn(problem("q", "42"), 0.0)
    assert share_right(policy.sample("q", 5 * N)) == 0.0


def test_lengths_vary_and_every_way_to_break_the_format_occurs() -> None:
    samples = taught().sample("e", N)
    failures = Counter(extract_answer(sample.text).failure for sample in samples)
    assert failures[Status.NO_ANSWER] > 0
    assert failures[Status.SEVERAL_ANSWERS] > 0
    assert failures[None] > 0.8 * N
    broken = [sample for sample in samples if sample.finish_reason == "length"]
    assert broken
    assert all("</think>" not in sample.text for sample in broken)
    assert len({len(sample.text) for sample in samples[:50]}) > 10


def test_the_order_of_requests_changes_nothing() -> None:
    forward, backward = taught(), taught()
    easy, hard = forward.sample("e", 4), forward.sample("h", 4)
    assert backward.sample("h", 4) == hard
    assert backward.sample("e", 2) + backward.sample("e", 2) == easy


def test_another_seed_answers_differently() -> None:
    assert taught(seed=0).sample("e", 8) != taught(seed=1).sample("e", 8)
