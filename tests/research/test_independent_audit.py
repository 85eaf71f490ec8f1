"""What an independent auditor reads, and how its results are explained."""

import pytest

from reasoning_gym_environment.integrations.shared import problem_row
from research.independent_audit import explanation, gym, reward


def result(name: str, variant: str, expected: str) -> dict[str, str]:
    probe, _, name = name.partition(" ")
    return {"probe": probe, "name": name, "variant": variant, "expected": expected}


def test_results_are_explained_by_the_rule_of_one_answer_and_by_what_is_known() -> None:
    named = result("P14 format_mentions", "empty_tag_pair_named_after", "full")
    assert "rule of one answer" in explanation(named, "gcd")
    either = result("P15 hedged_in_slot", "either_or", "zero")
    assert "ignores what follows" in explanation(either, "survo")
    assert not explanation(either, "gcd")
    assert not explanation(result("P15 hedged_in_slot", "denied", "zero"), "survo")
    assert not explanation(result("P1 ground_truth", "reference", "full"), "gcd")


@pytest.mark.processes
def test_the_audited_reward_is_1_for_a_solved_problem_alone() -> None:
    [problem] = gym().problems("gcd")
    row = problem_row(problem, "direct")
    texts = [
        f"<answer>{problem.oracle}</answer>",
        f"<answer>not {problem.oracle}</answer>",
        "",
    ]
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    assert reward(completions, [row["recipe"]] * 3, prompts=[row["prompt"]] * 3) == [
        1.0,
        0.0,
        0.0,
    ]
    gym().close()
