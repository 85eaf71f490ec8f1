"""One of a run's replicas evaluates; another takes over, and nothing that was due is left out."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from reasoning_gym_environment.evaluation.duty import EvaluationDuty


def ticking() -> Callable[[], float]:
    """A clock that goes on by a minute whenever it is read."""
    return map(float, itertools.count(0, 60)).__next__


def duty(folder: Path, every: int = 10) -> EvaluationDuty:
    return EvaluationDuty(folder / "run.evaluation", every=every, clock=ticking())


def test_an_evaluation_is_due_once_at_each_multiple_also_where_a_step_is_skipped(
    tmp_path: Path,
) -> None:
    replica, evaluated = duty(tmp_path), []
    for step in (0, 1, 9, 10, 11, 19, 21, 47, 48, 50):
        if replica.due(step):
            evaluated.append(step)
            replica.done(step)
    assert evaluated == [10, 21, 47, 50]


def test_one_of_four_replicas_evaluates_and_always_the_same(tmp_path: Path) -> None:
    replicas = [duty(tmp_path) for _ in range(4)]
    for step in range(31):
        for number, replica in enumerate(replicas):
            if replica.due(step):
                assert number == 0
                replica.done(step)
    assert replicas[0].due(40)


def test_whoever_takes_over_makes_up_for_what_was_due(tmp_path: Path) -> None:
    first, second = duty(tmp_path), duty(tmp_path)
    assert not first.due(0)
    assert not second.due(0)
    assert first.due(10)
    first.close()  # with the evaluation unfinished
    assert second.due(12)
    second.done(12)
    second.close()
    assert not duty(tmp_path).due(13)


def test_a_replacement_makes_up_for_what_was_due_while_nobody_was_there(tmp_path: Path) -> None:
    first = duty(tmp_path)
    assert not first.due(3)
    first.close()
    assert duty(tmp_path).due(14)


def test_a_later_step_is_of_an_earlier_run_and_counts_for_nothing(tmp_path: Path) -> None:
    first = duty(tmp_path)
    first.due(0)
    first.done(200)
    first.close()
    again = duty(tmp_path)
    assert not again.due(0)
    assert again.due(10)


@pytest.mark.parametrize("left", ["", "ten", "\udcff", "-4"])
def test_a_file_that_says_nothing_counts_from_here(tmp_path: Path, left: str) -> None:
    (tmp_path / "run.evaluation").write_bytes(left.encode(errors="surrogateescape"))
    replica = duty(tmp_path)
    assert not replica.due(25)
    assert replica.due(30)


def test_replicas_that_cannot_share_a_file_all_evaluate_and_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    replicas = [duty(tmp_path / "file") for _ in range(2)]
    assert not any(replica.due(3) for replica in replicas)
    assert all(replica.due(10) for replica in replicas)
    for replica in replicas:
        replica.done(10)
    assert not any(replica.due(11) for replica in replicas)
    assert caplog.text.count("this replica evaluates, whatever others do") == 2


def test_without_steps_between_them_no_evaluation_is_due_and_no_file_made(tmp_path: Path) -> None:
    assert not duty(tmp_path, every=0).due(10)
    assert list(tmp_path.iterdir()) == []
