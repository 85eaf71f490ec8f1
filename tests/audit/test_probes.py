"""What the audit tries, what it calls a finding, and what it takes for known."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from reasoning_gym_environment.audit.findings import (
    DEGENERATE,
    FORMS,
    TOLERATED_SHARE,
    Kind,
    Known,
    Observation,
    Probe,
    TaskAudit,
    constants_for,
    explanation,
    judge,
    known_findings,
    known_weaknesses,
    probes_for,
)
from reasoning_gym_environment.audit.ladder_proof import LevelProof
from reasoning_gym_environment.audit.run import best, constants_to_try, floor
from reasoning_gym_environment.records import Problem, Recipe, Status, Verdict
from reasoning_gym_environment.tasks import facts
from reasoning_gym_environment.tasks.catalogue import known_categories
from reasoning_gym_environment.tasks.facts import PAYS_ANY_ANSWER, Floors, floors

FEWEST = {"futoshiki": 150, "intermediate_integration": 100, "knight_swap": 100}
"""Items on which a floor was measured: fewer than 300 where they take seconds."""

LEVEL_KINDS = {"generation", "oracle", "no oracle"}
ANSWER_KINDS = {*(kind.value for kind in DEGENERATE), "killed", "raises", "empty oracle"}


def probes(oracle: str | None = "12", others: tuple[str, ...] = ("7", "8")) -> list[Probe]:
    return probes_for("What is 5 + 7?", oracle, constants=constants_for(others), others=others)


def seen(kind: Kind, *scores: float, label: str = "x", is_right: bool = False) -> list[Observation]:
    """One probe's scores on several items."""
    probe = Probe(kind=kind, label=label, answer=label, is_right=is_right)
    return [
        Observation(
            probe=probe,
            verdict=Verdict(score=s, status=Status.SOLVED if s >= 0.5 else Status.WRONG),
        )
        for s in scores
    ]


def proof(
    level: int | None,
    *,
    items: int,
    below: int = 0,
    none: int = 0,
    errors: Sequence[str] = (),
    late: Sequence[str] = (),
) -> LevelProof:
    """A level with so many items: some with a wrong answer of their own, some without one."""
    problem = Problem(recipe=Recipe(task="gcd", seed=1), question="?", oracle=None, entry=b"")
    verdict = Verdict(score=1.0, status=Status.SOLVED)
    wrong = Verdict(score=0.9, status=Status.SOLVED)
    return LevelProof(
        task="gcd",
        level=level,
        parameters={},
        problems=[problem] * items,
        verdicts=[wrong] * below + [verdict] * (items - none - below),
        errors=errors,
        late=late,
    )


def audited(
    observations: list[Observation],
    *levels: LevelProof,
    known: dict[str, dict[str, Known]] | None = None,
) -> TaskAudit:
    default = proof(None, items=10)
    return judge(
        "gcd",
        "arithmetic",
        observations,
        [default, *levels],
        floors=Floors(chance=floor("1", [], 1.0), no_reasoning=floor("", [], 1.0)),
        known=known or {},
    )


def found(audit: TaskAudit) -> list[tuple[str, int | None]]:
    return [(finding.kind, finding.level) for finding in audit.findings]


def test_every_kind_of_answer_is_tried() -> None:
    assert {probe.kind for probe in probes()} == set(Kind)


def test_labels_tell_probes_of_one_kind_apart() -> None:
    names = [(probe.kind, probe.label) for probe in probes()]
    assert len(set(names)) == len(names)


def test_labels_are_the_same_on_every_item() -> None:
    labels = [{(p.kind, p.label) for p in probes(oracle)} for oracle in ("12", "0", "yes")]
    assert labels[0] == labels[1] == labels[2]


def test_a_text_that_is_the_oracle_is_right_and_no_other() -> None:
    right = {p.answer for p in probes("0") if p.is_right and p.kind not in (Kind.FORM, Kind.ORACLE)}
    assert right == {"0"}
    assert not any(p.is_right for p in probes("12") if p.kind in DEGENERATE)


def test_another_items_answer_may_be_right() -> None:
    assert [p.is_right for p in probes("7") if p.kind is Kind.OTHER] == [True]
    assert [p.is_right for p in probes("8") if p.kind is Kind.OTHER] == [False]


def test_a_form_holds_the_right_answer_as_it_is() -> None:
    forms = [probe for probe in probes("{1, 2}") if probe.kind is Kind.FORM]
    assert len(forms) == len(FORMS)
    assert all("{1, 2}" in probe.answer and probe.answer != "{1, 2}" for probe in forms)


def test_a_denied_or_doubted_answer_is_the_right_one_and_counts_as_wrong() -> None:
    for kind in (Kind.DENIED, Kind.HEDGED):
        tried = [probe for probe in probes("12") if probe.kind is kind]
        assert len(tried) > 2
        assert all("12" in one.answer != "12" and not one.is_right for one in tried)


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
    assert set(constants_for(["left", "up", "left"])) - set(constants_for([])) == {"left", "up"}


@pytest.mark.parametrize("kind", DEGENERATE)
def test_what_is_not_right_and_solves_items_is_a_finding(kind: Kind) -> None:
    assert found(audited(seen(kind, 0.5, 0.5, 1.0, 0.0))) == [(kind.value, None)]


def test_small_credit_and_rare_luck_are_no_findings() -> None:
    assert found(audited(seen(Kind.JUNK, *[0.4] * 10))) == []
    assert found(audited(seen(Kind.CONSTANT, *[1.0] * 4, *[0.0] * 36))) == []
    assert found(audited(seen(Kind.CONSTANT, 1.0, 1.0, 0.0))) == []


def test_a_constant_that_is_right_is_no_finding() -> None:
    assert found(audited(seen(Kind.CONSTANT, 1.0, 1.0, 1.0, is_right=True))) == []


def test_wrong_oracles_and_levels_that_fail_are_findings() -> None:
    audit = audited(
        [],
        proof(0, items=3, below=1),
        proof(1, items=0, errors=["ValueError"]),
        proof(2, items=3, none=3),
        proof(3, items=1, late=["no reply"]),
    )
    assert found(audit) == [("oracle", 0), ("generation", 1), ("no oracle", 2)]


def test_a_verifier_that_dies_or_raises_is_a_finding() -> None:
    killed = Observation(
        probe=Probe(kind=Kind.QUESTION, label="question", answer="?"),
        verdict=Verdict(score=0.0, status=Status.TIMEOUT),
    )
    raising = Observation(
        probe=Probe(kind=Kind.ORACLE, label="oracle", answer="1", is_right=True),
        verdict=Verdict(score=0.0, status=Status.VERIFIER_ERROR, errors=2),
    )
    assert found(audited([killed, raising])) == [("killed", None), ("raises", None)]


def test_an_oracle_that_nobody_can_give_is_a_finding() -> None:
    assert found(audited(seen(Kind.ORACLE, 1.0, label=""))) == [("empty oracle", None)]


def test_the_floor_is_the_constant_that_solves_most_items() -> None:
    scores = [{"yes": 1.0, "no": 1.0}, {"yes": 0.0, "no": 0.0}, {"yes": 0.0, "no": 1.0}]
    measured = floor(best(scores, 1.0), scores, 1.0)
    assert (measured.label, measured.solved) == ("no", pytest.approx(2 / 3))
    assert measured.low < 2 / 3 < measured.high


def test_a_floor_is_of_answers_that_are_seen_as_answers() -> None:
    constants = constants_to_try(["7", "yes", "yes"])
    assert {"7", "yes", "0", "asdf qwer", "[]"} <= constants.keys()
    assert all(text.strip() for text in constants)


def test_a_strategy_without_an_answer_on_an_item_solves_nothing_there() -> None:
    scores = [{"a": 1.0}, {}, {"a": 1.0, "b": 0.9}, {"b": 0.4}]
    assert best(scores, 1.0) == "a"
    assert floor("a", scores, 1.0).solved == 0.5
    assert floor("b", scores, 0.5).solved == 0.25


def test_of_no_items_no_floor_is_known() -> None:
    assert best([], 1.0) == ""
    assert floor("", [], 1.0)[1:] == (0, 0.0, 0.0, 1.0)


def test_what_is_known_explains_its_kind_and_levels_alone() -> None:
    known = {"gcd": {"generation": Known(reason="refused", levels={1})}}
    assert explanation(known, "gcd", "generation", 1) == "refused"
    assert not explanation(known, "gcd", "generation", 2)
    assert not explanation(known, "gcd", "oracle", 1)
    assert not explanation(known, "lcm", "generation", 1)


def test_an_explained_finding_is_still_reported() -> None:
    known = {"gcd": {"junk": Known(reason="as it is")}}
    [finding] = audited(seen(Kind.JUNK, 1.0, 1.0, 1.0), known=known).findings
    assert finding.explanation == "as it is"


def test_what_is_known_and_not_found_is_told() -> None:
    known = {"gcd": {"junk": Known(reason="as it is"), "raises": Known(reason="it did")}}
    assert audited(seen(Kind.JUNK, 1.0, 1.0, 1.0), known=known).unseen == ["raises"]


def test_explanations_are_for_tasks_and_findings_that_exist() -> None:
    assert known_findings().keys() <= known_categories().keys()
    for kinds in known_findings().values():
        assert kinds.keys() <= ANSWER_KINDS | LEVEL_KINDS
        assert all(known.reason for known in kinds.values())


def test_a_task_that_pays_any_answer_is_known() -> None:
    known = known_findings()
    assert explanation(known, "game_of_life_halting", Kind.JUNK.value, None)


def test_the_floors_are_of_the_installed_library() -> None:
    stored = json.loads(Path(facts.__file__).with_name("chance_floors.json").read_text())
    assert stored["reasoning_gym"] == version("reasoning-gym")


def test_what_is_paid_without_reasoning_is_in_the_list_of_what_is_accepted() -> None:
    paid = {
        task
        for task, kept in floors().items()
        if any(one.low > TOLERATED_SHARE / 2 and one.solved >= TOLERATED_SHARE for one in kept)
    }
    assert paid - PAYS_ANY_ANSWER.keys() <= known_weaknesses().keys()


def test_every_floor_has_its_items_and_an_interval_around_it() -> None:
    assert floors().keys() == known_categories().keys()
    for task, kept in floors().items():
        for one in kept:
            assert one.items >= FEWEST.get(task, 300), task
            assert 0.0 <= one.low <= one.solved <= one.high <= 1.0
            assert one.label or not one.solved
    assert floors(0.9) == {}
