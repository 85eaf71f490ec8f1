"""What a proof tries, what it calls a finding, its verdicts, and what it takes for known."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.proof.answers import Observation, judge_answers
from reasoning_gym_environment.proof.checks import (
    CHECKS,
    FEWEST_ITEMS,
    Result,
    TaskProof,
    judge,
    summaries,
)
from reasoning_gym_environment.proof.findings import (
    DEGENERATE,
    EXECUTED,
    FORMS,
    Finding,
    Kind,
    KnownFindings,
    Probe,
    constant_probes,
    constants_for,
    known_findings,
    near_misses,
    probes_for,
)
from reasoning_gym_environment.proof.ladder_proof import DRAWS, LevelProof
from reasoning_gym_environment.proof.proving import require_waivable
from reasoning_gym_environment.records import Problem, Recipe, Status, Verdict
from reasoning_gym_environment.tasks.facts import known_categories
from reasoning_gym_environment.tasks.modules import Declaration

LEVEL_KINDS = {
    *("generation", "oracle", "no oracle", "differs"),
    *("questions", "answers"),
}
ANSWER_KINDS = {
    *(kind.value for kind in (*DEGENERATE, Kind.HOSTILE)),
    "killed",
    "raises",
    "empty oracle",
}


def probes(
    oracle: str | None = "12", others: tuple[str, ...] = ("7", "8")
) -> list[Probe]:
    return probes_for(
        "What is 5 + 7?", oracle, constants=constants_for(others), others=others
    )


def seen(
    kind: Kind, *scores: float, label: str = "x", is_right: bool = False
) -> list[Observation]:
    """One probe's scores on several items."""
    probe = Probe(kind=kind, label=label, answer=label, is_right=is_right)
    return [
        Observation(
            probe=probe,
            verdict=Verdict(
                score=s, status=Status.SOLVED if s >= 0.5 else Status.WRONG
            ),
        )
        for s in scores
    ]


def proof(level: int | None = None, *, tried: int = 20, **more: Any) -> LevelProof:
    """A level whose items have all been drawn, and differ."""
    numbers = range(tried)
    values: dict[str, Any] = {
        "questions": {number: f"{level} {number}" for number in numbers},
        "answers": {number: str(number) for number in numbers},
        "training": {number: (f"training {number}", str(number)) for number in numbers},
    }
    return LevelProof(
        task="gcd", level=level, parameters={"n": level}, tried=tried, **values | more
    )


def judged(
    *observations: Observation,
    default: LevelProof | None = None,
    levels: Sequence[LevelProof] = (),
    known: KnownFindings | None = None,
    **more: Any,
) -> Result:
    """The result of a sound task but for what is given."""
    values: dict[str, Any] = {
        "answers": judge_answers([*seen(Kind.FORM, 1.0), *observations], items=30),
        "default": default or proof(),
        "levels": [*levels] or [proof(0, tried=DRAWS)],
    }
    if values["answers"] is not None and "answers" not in more:
        values["level_answers"] = {
            level.level: judge_answers(seen(Kind.FORM, 1.0), items=FEWEST_ITEMS)
            for level in values["levels"]
        }
    whole = TaskProof(task="gcd", category="arithmetic", **values | more)
    return judge(whole, items=20, known_findings=known or {})


def found(result: Result) -> list[tuple[str, int | None]]:
    return [(finding.kind, finding.level) for finding in result.findings]


def verdicts(result: Result, verdict: str) -> list[str]:
    return [name for name, check in result.checks.items() if check.verdict == verdict]


def test_every_kind_of_answer_is_tried() -> None:
    of_few_items = {Kind.HOSTILE, Kind.REPETITIVE, Kind.COPY}
    assert {probe.kind for probe in probes()} | of_few_items == set(Kind)


def test_labels_tell_probes_of_one_kind_apart() -> None:
    names = [(probe.kind, probe.label) for probe in probes()]
    assert len(set(names)) == len(names)


def test_labels_are_the_same_on_every_item() -> None:
    """But for near misses and changed numbers, which not every answer has."""
    some = (Kind.NEAR_MISS, Kind.CHANGED)
    labels = [
        {(p.kind, p.label) for p in probes(oracle) if p.kind not in some}
        for oracle in ("12", "0", "yes")
    ]
    assert labels[0] == labels[1] == labels[2]


@pytest.mark.parametrize(
    "oracle", ["7", "yes", "[[1, 2]]", "x", "a b", "11", "1 2\n", "²", ""]
)
def test_a_near_miss_is_another_text_than_the_answer(oracle: str) -> None:
    missed = {text.strip() for text in near_misses(oracle).values()}
    assert not missed & {"", oracle.strip()}


def test_a_text_that_spells_the_oracle_is_right_and_no_other() -> None:
    right = {
        p.answer
        for p in probes("0")
        if p.is_right and p.kind not in (Kind.FORM, Kind.ORACLE)
    }
    assert right == {"0", "0."}  # one number
    assert not any(p.is_right for p in probes("12") if p.kind in DEGENERATE)


def test_another_items_answer_may_be_right() -> None:
    assert [p.is_right for p in probes("7") if p.kind is Kind.OTHER] == [True]
    assert [p.is_right for p in probes("8") if p.kind is Kind.OTHER] == [False]


def test_a_form_holds_the_right_answer_as_it_is() -> None:
    forms = [probe for probe in probes("{1, 2}") if probe.kind is Kind.FORM]
    assert len(forms) == len(FORMS)
    assert all("{1, 2}" in probe.answer and probe.answer != "{1, 2}" for probe in forms)


def test_a_denied_or_doubted_answer_is_the_right_one_and_counts_as_wrong() -> None:
    for kind in (Kind.DENIED, Kind.CHANGED, Kind.HEDGED):
        tried = [probe for probe in probes("12") if probe.kind is kind]
        assert len(tried) > 2
        assert all("12" in one.answer != "12" and not one.is_right for one in tried)


@pytest.mark.parametrize("oracle", ["0", "-3", "yes", "1/2", "²"])
def test_only_a_positive_number_is_changed(oracle: str) -> None:
    assert Kind.CHANGED not in {probe.kind for probe in probes(oracle)}


def test_several_answers_hold_the_right_one_and_a_wrong_one() -> None:
    listings = [probe.answer for probe in probes("12") if probe.kind is Kind.LISTING]
    assert listings
    assert all("12" in text and "7" in text for text in listings)


def test_an_oracle_that_all_items_share_is_never_listed_beside_itself() -> None:
    assert Kind.LISTING not in {probe.kind for probe in probes("7", others=("7", "7"))}


def test_a_task_without_an_oracle_is_tried_with_wrong_answers_only() -> None:
    kinds = {probe.kind for probe in probes(None, others=())}
    assert kinds == {Kind.EMPTY, Kind.JUNK, Kind.CONSTANT, Kind.QUESTION}


def test_the_most_frequent_answers_are_constants() -> None:
    assert set(constants_for(["left", "up", "left"])) - set(constants_for([])) == {
        "left",
        "up",
    }


@pytest.mark.parametrize(
    "kind",
    [kind for kind in DEGENERATE if kind not in (Kind.NEAR_MISS, Kind.COPY)],
)
def test_what_is_not_right_and_solves_items_is_a_finding(kind: Kind) -> None:
    assert found(judged(*seen(kind, 0.5, 0.5, 1.0, 0.0))) == [(kind.value, None)]


def test_an_answer_is_copied_if_a_place_has_it_more_often_than_one_of_two() -> None:
    assert found(judged(*seen(Kind.COPY, *[1.0] * 8, 0.0, 0.0))) == [
        ("copied from the question", None)
    ]
    assert found(judged(*seen(Kind.COPY, *[1.0] * 15, *[0.0] * 5))) == []


def test_a_paid_answer_is_shown_with_its_question_its_text_and_its_verdict() -> None:
    problem = Problem(
        recipe=Recipe(task="gcd", seed=0), question="Add 2.", oracle="12", entry=b""
    )
    paid = [replace(one, problem=problem) for one in seen(Kind.DENIED, 1.0, 1.0, 1.0)]
    example = judged(*paid).checks["not_payable"].example
    assert example == "'Add 2.' answered 'x' (label '12'): solved 1.0"


def test_a_near_miss_within_the_declared_tolerance_is_right() -> None:
    def misses(tolerance: float) -> dict[str, bool]:
        tried = probes_for("?", "120", constants=(), others=(), tolerance=tolerance)
        return {p.answer: p.is_right for p in tried if p.kind is Kind.NEAR_MISS}

    assert misses(0.0) == {"12": False, "121": False, "210": False}
    assert misses(0.01) == {"12": False, "121": True, "210": False}


OWN = Declaration()


def test_labels_without_a_verifier_or_a_second_answer_are_not_checked() -> None:
    alone = judged(declared=Declaration(verifier=False))
    assert (alone.verdict, verdicts(alone, "not_checked")) == (
        "not_checked",
        ["solvable"],
    )
    assert alone.checks["solvable"].reason == "no verifier: labels not checked [labels]"
    solved = judged(declared=Declaration(verifier=False, solve=True))
    assert (solved.verdict, judged(declared=OWN).verdict) == ("proved", "proved")
    assert "solve has the same answers" in solved.checks["solvable"].reason


def test_an_author_waives_a_judgement_with_a_reason_that_is_kept() -> None:
    near = seen(Kind.NEAR_MISS, 1.0, 1.0, 1.0)
    assert verdicts(judged(*near, declared=OWN), "failed") == ["not_payable"]
    waive = {"near_miss": "1 % is near enough", "constant": "there is one"}
    result = judged(*near, declared=Declaration(waive=waive))
    assert (result.verdict, result.checks["not_payable"].verdict) == (
        "proved",
        "waived",
    )
    assert result.checks["not_payable"].reason == "near miss: 1 % is near enough"
    assert [one.explanation for one in result.findings] == ["1 % is near enough"]
    assert result.unseen == ["constant"]


def test_only_judgements_can_be_waived() -> None:
    require_waivable("own", Declaration(waive={"near_miss": "so it is"}))
    with pytest.raises(ConfigurationError, match="own waives 'oracle'; only these"):
        require_waivable("own", Declaration(waive={"oracle": "so it is"}))


def test_long_answers_that_evaluation_has_too_are_a_warning_of_the_default() -> None:
    answers = {number: f"the sum of {number % 9} and 1" for number in range(20)}
    trained = {number: (f"training {number}", answers[number]) for number in answers}
    default = proof(answers=answers, training=trained)
    result = judged(default=default, declared=OWN)
    assert (result.verdict, verdicts(result, "warning")) == ("proved", ["disjoint"])
    assert "[answers]" in result.checks["disjoint"].reason


@pytest.mark.parametrize(
    ("characters", "answers", "verdict"),
    [
        ((100, 200, 300), (3, 3, 3), "passed"),
        ((300, 200, 100), (3, 3, 3), "warning"),
        ((300, 200, 100), (3, 2, 1), "failed"),
        ((300, 100, 290), (3, 1, 3), "passed"),
    ],
)
def test_levels_that_become_easier_are_found_by_their_lengths(
    characters: Sequence[int], answers: Sequence[int], verdict: str
) -> None:
    levels = [
        proof(
            level,
            tried=DRAWS,
            characters=DRAWS * characters[level],
            answer_characters=DRAWS * answers[level],
        )
        for level in range(3)
    ]
    result = judged(levels=levels, declared=OWN)
    assert result.checks["levels"].verdict == verdict
    assert judged(levels=levels).checks["levels"].verdict == "passed"


def test_levels_whose_answers_become_easier_to_guess_are_told() -> None:
    levels = [
        proof(
            level,
            tried=DRAWS,
            answers={n: str(n % (100, 10, 2)[level]) for n in range(DRAWS)},
        )
        for level in range(3)
    ]
    check = judged(levels=levels, declared=OWN).checks["levels"]
    assert check.verdict == "warning"
    assert "one answer is right for 1% of level 0 and 50% of level 2" in check.reason


def test_a_question_with_two_answers_needs_a_verifier() -> None:
    twice = proof(questions=dict.fromkeys(range(20), "the same"))
    labels = judged(default=twice, declared=Declaration(verifier=False, solve=True))
    assert verdicts(labels, "failed") == ["solvable"]
    assert "has the answers '0' and '1'" in labels.checks["solvable"].reason
    assert judged(default=twice, declared=OWN).verdict == "proved"


def test_answers_that_no_completion_holds_are_a_finding() -> None:
    long = proof(0, tried=DRAWS, answer_characters=DRAWS * 40_000)
    check = judged(levels=[long]).checks["levels"]
    assert check.reason == "level 0: answers of 40000 characters"


def test_levels_show_one_line_for_each_kind_of_finding() -> None:
    levels = [
        proof(n, tried=DRAWS, findings=[finding("levels", "generation", level=n)])
        for n in range(3)
    ]
    result = judged(levels=levels)
    assert summaries(result.findings) == [("level 0, 1, 2: it was so (3 items)", "")]


def test_few_items_leave_the_answers_untried() -> None:
    answers = judge_answers(seen(Kind.FORM, 1.0), items=3)
    check = judged(answers=answers).checks["not_payable"]
    assert check.verdict == "not_tried"
    assert check.reason == "answers were tried on 3 items, and 30 are wanted"


def test_small_credit_and_rare_luck_are_no_findings() -> None:
    assert found(judged(*seen(Kind.JUNK, *[0.4] * 10))) == []
    assert found(judged(*seen(Kind.CONSTANT, *[1.0] * 4, *[0.0] * 36))) == []
    assert found(judged(*seen(Kind.CONSTANT, 1.0, 1.0, 0.0))) == []


def test_chance_is_what_a_constant_solves_with_the_items_where_it_is_right() -> None:
    half = Observation(
        probe=Probe(kind=Kind.CONSTANT, label="half", answer="half"),
        verdict=Verdict(score=0.5, status=Status.WRONG),
    )
    right = seen(Kind.CONSTANT, 1.0, 0.0, label="1", is_right=True)
    chance = judged(*[half] * 2, *right).chance
    assert chance is not None
    assert (chance.label, chance.solved) == ("1", 0.5)


def test_a_constant_that_is_the_label_in_another_spelling_is_right() -> None:
    right = {
        p.answer for p in constant_probes(["a", "A", "b", "No"], "A") if p.is_right
    }
    assert right == {"a", "A"}
    numbers = constant_probes(["2", "2.0", "20"], "2.00")
    assert {p.answer for p in numbers if p.is_right} == {"2", "2.0"}
    assert not any(p.is_right for p in constant_probes(["a"], None))


def test_a_constant_that_is_right_is_no_finding() -> None:
    assert found(judged(*seen(Kind.CONSTANT, 1.0, 1.0, 1.0, is_right=True))) == []


def test_near_misses_may_earn_their_share_and_some_be_right_but_not_most() -> None:
    paid, partly = (
        Observation(
            probe=Probe(kind=Kind.NEAR_MISS, label="x", answer="x"),
            verdict=Verdict(score=0.9, status=status),
        )
        for status in (Status.SOLVED, Status.WRONG)
    )
    assert (
        found(judged(*[partly] * 9, paid))
        == found(judged(*[paid] * 5, *[partly] * 5))
        == []
    )
    assert found(judged(*[paid] * 6, *[partly] * 5)) == [("near miss", None)]


def test_a_verifier_that_dies_or_obeys_is_a_finding_and_execution_is_told() -> None:
    killed = Observation(
        probe=Probe(kind=Kind.QUESTION, label="question", answer="?"),
        verdict=Verdict(score=0.0, status=Status.TIMEOUT),
    )
    result = judged(killed, *seen(Kind.HOSTILE, 1.0))
    assert found(result) == [("killed", None), ("hostile text", None)]
    assert verdicts(result, "failed") == ["contained", "bounded"]
    executed = Observation(
        probe=Probe(kind=Kind.HOSTILE, label="x", answer=EXECUTED[0]),
        verdict=Verdict(score=0.0, status=Status.WRONG, seconds=2.0),
    )
    assert judged().stateless
    own, again = (
        seen(Kind.JUNK, 0.0)[0],
        Verdict(score=0.0, status=Status.OUT_OF_MEMORY),
    )
    crowded = judged(answers=judge_answers([own], items=1, changed=[(own, again)]))
    assert (crowded.stateless, verdicts(crowded, "failed")) == (False, [])
    depends = judge_answers(
        [own], items=1, changed=[(own, replace(again, status=Status.SOLVED))]
    )
    assert verdicts(judged(answers=depends), "failed") == ["contained"]
    assert not judged(executed).stateless
    assert "executes answers" in judged(executed).checks["contained"].reason


def finding(check: str, kind: str, **more: Any) -> Finding:
    return Finding(check=check, kind=kind, detail="it was so", **more)


FEW_QUESTIONS = proof(
    tried=DRAWS,
    questions={number: f"None {number % 39}" for number in range(DRAWS)},
    training={},
)


@pytest.mark.parametrize(
    ("more", "failed", "said"),
    [
        (
            {"default": proof(findings=[finding("solvable", "oracle")])},
            "solvable",
            "it was so",
        ),
        (
            {"default": proof(findings=[finding("reproducible", "differs")])},
            "reproducible",
            "",
        ),
        ({"findings": [finding("contained", "import")]}, "contained", ""),
        (
            {"levels": [proof(0, findings=[finding("levels", "generation", level=0)])]},
            "levels",
            "level 0: it was so",
        ),
        (
            {
                "levels": [
                    proof(0, tried=40),
                    proof(1, tried=40, questions=proof(0, tried=40).questions),
                ]
            },
            "levels",
            "level 1: nearly the questions of level 0",
        ),
        (
            {"default": proof(findings=[finding("bounded", "late", items=3)])},
            "bounded",
            "(3 items)",
        ),
        (
            {"default": FEW_QUESTIONS},
            "disjoint",
            "fewer than 40 questions differ: training and evaluation both ask all of them",
        ),
        (
            {"default": proof(training={n: (f"None {n}", "") for n in range(20)})},
            "disjoint",
            "100% of the training questions are those of the evaluation items",
        ),
        (
            {
                "levels": [
                    proof(
                        0, tried=DRAWS, training={n: (f"0 {n}", "") for n in range(20)}
                    )
                ]
            },
            "disjoint",
            "level 0: 100% of the training questions are those of",
        ),
    ],
)
def test_each_check_fails_by_its_findings(
    more: dict[str, Any], failed: str, said: str
) -> None:
    result = judged(**more)
    assert verdicts(result, "failed") == [failed]
    assert said in result.checks[failed].reason
    assert result.verdict == "failed"


def test_late_items_are_a_warning_up_to_a_tenth_of_a_level_and_a_failure_above() -> (
    None
):
    def level(items: int) -> LevelProof:
        late = finding("bounded", "late", items=items, level=0)
        return proof(0, tried=DRAWS, findings=[late])

    few, many = judged(levels=[level(20)]), judged(levels=[level(21)])
    assert (few.verdict, verdicts(few, "warning")) == ("proved", ["bounded"])
    assert "level 0: it was so, of 10% of 200 items" in few.checks["bounded"].reason
    assert verdicts(many, "failed") == ["bounded"]


def test_a_level_with_fewer_than_ten_items_is_not_tried_by_name() -> None:
    answers = {
        level: judge_answers(seen(Kind.FORM, 1.0), items=10 - level) for level in (0, 1)
    }
    result = judged(
        levels=[proof(0, tried=DRAWS), proof(1, tried=9)], level_answers=answers
    )
    assert {*verdicts(result, "not_tried")} == {*CHECKS}
    for check in ("reproducible", "not_payable", "contained"):
        assert "of level 1" in result.checks[check].reason
    assert "1 (9)" in result.checks["levels"].reason


@pytest.mark.parametrize(
    ("kind", "level", "paid", "is_found"),
    [
        # 5 of 30 are 17 %, with 7 to 34 % as interval.
        (Kind.CONSTANT, 0, 5, False),
        (Kind.OTHER, 0, 5, False),
        (Kind.CONSTANT, 0, 9, True),
        (Kind.HEDGED, 0, 5, True),
        (Kind.CONSTANT, None, 5, True),
    ],
)
def test_a_constant_that_is_right_on_some_items_of_a_level_is_luck(
    kind: Kind, level: int | None, paid: int, is_found: bool
) -> None:
    scores = [1.0] * paid + [0.0] * (30 - paid)
    answers = judge_answers(seen(kind, *scores), items=30, level=level)
    assert [one.kind for one in answers.findings] == [kind.value] * is_found


def test_what_is_paid_at_one_level_names_it() -> None:
    paid = judge_answers(seen(Kind.JUNK, *[0.5] * 10), items=10, level=0)
    result = judged(level_answers={0: paid})
    assert found(result) == [("junk", 0)]
    assert result.checks["not_payable"].reason.startswith(
        "level 0: 'x' earns half credit on 100%, mean score 0.50"
    )


def test_an_unlikely_share_of_a_few_items_is_decided_by_more() -> None:
    def doubtful(kind: Kind, paid: int) -> bool:
        scores = [1.0] * paid + [0.0] * (10 - paid)
        return judge_answers(seen(kind, *scores), items=10).is_doubtful

    assert [doubtful(Kind.JUNK, paid) for paid in (1, 2, 8, 9)] == [
        False,
        True,
        True,
        False,
    ]
    assert [doubtful(Kind.NEAR_MISS, paid) for paid in (5, 10)] == [False, True]


def test_a_sound_task_is_proved_and_what_is_left_is_not_tried() -> None:
    assert verdicts(judged(), "passed") == [*CHECKS]
    assert judged().verdict == "proved"
    left = {
        "levels": judged(levels=[proof(0, tried=DRAWS - 1)]),
        "not_payable contained bounded": judged(answers=None),
        "reproducible solvable bounded disjoint": judged(default=proof(tried=19)),
    }
    for names, result in left.items():
        assert verdicts(result, "not_tried") == names.split()
        assert result.verdict == "not_tried"


def test_an_explained_finding_is_still_reported() -> None:
    known = {"gcd": {"junk": "as it is"}}
    result = judged(*seen(Kind.JUNK, 1.0, 1.0, 1.0), known=known)
    assert [one.explanation for one in result.findings] == ["as it is"]
    assert verdicts(result, "known") == ["not_payable"]
    assert result.verdict == "proved"


def test_what_is_known_and_not_found_is_told() -> None:
    known = {"gcd": {"junk": "as it is", "raises": "it did"}}
    assert judged(*seen(Kind.JUNK, 1.0, 1.0, 1.0), known=known).unseen == ["raises"]


def test_explanations_are_for_tasks_and_findings_that_exist() -> None:
    assert known_findings().keys() <= known_categories().keys()
    for kinds in known_findings().values():
        assert kinds.keys() <= ANSWER_KINDS | LEVEL_KINDS
        assert all(kinds.values())


def test_a_task_that_pays_any_answer_is_known() -> None:
    known = known_findings()
    assert known["game_of_life_halting"][Kind.JUNK.value]
