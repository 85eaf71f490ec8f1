"""One of a run's replicas evaluates; another takes over, and nothing that was due is left out."""

from pathlib import Path

import pytest

from reasoning_gym_environment.evaluation.election import LeaderElection


class Candidate(LeaderElection):
    """Tries to lead at each step, and not only every five seconds."""

    def is_due(self, step: int) -> bool:
        self._retry_at = 0.0
        return super().is_due(step)


def candidate(folder: Path, every: int = 10) -> LeaderElection:
    return Candidate(folder / "run.evaluation", every=every)


def test_an_evaluation_is_due_once_at_each_multiple_also_where_a_step_is_skipped(
    tmp_path: Path,
) -> None:
    replica, evaluated = candidate(tmp_path), []
    for step in (0, 1, 9, 10, 11, 19, 21, 47, 48, 50):
        if replica.is_due(step):
            evaluated.append(step)
            replica.record_done(step)
    assert evaluated == [10, 21, 47, 50]


def test_one_of_four_replicas_evaluates_and_always_the_same(tmp_path: Path) -> None:
    replicas = [candidate(tmp_path) for _ in range(4)]
    for step in range(31):
        for number, replica in enumerate(replicas):
            if replica.is_due(step):
                assert number == 0
                replica.record_done(step)
    assert replicas[0].is_due(40)


def test_whoever_takes_over_makes_up_for_what_was_due(tmp_path: Path) -> None:
    first, second = candidate(tmp_path), candidate(tmp_path)
    assert not first.is_due(0)
    assert not second.is_due(0)
    assert first.is_due(10)
    first.close()  # with the evaluation unfinished
    assert second.is_due(12)
    second.record_done(12)
    second.close()
    assert not candidate(tmp_path).is_due(13)


def test_a_replacement_makes_up_for_what_was_due_while_nobody_was_there(
    tmp_path: Path,
) -> None:
    first = candidate(tmp_path)
    assert not first.is_due(3)
    first.close()
    assert candidate(tmp_path).is_due(14)


def test_a_later_step_is_of_an_earlier_run_and_counts_for_nothing(
    tmp_path: Path,
) -> None:
    first = candidate(tmp_path)
    first.is_due(0)
    first.record_done(200)
    first.close()
    again = candidate(tmp_path)
    assert not again.is_due(0)
    assert again.is_due(10)


@pytest.mark.parametrize("left", ["", "ten", "\udcff", "-4"])
def test_a_file_that_says_nothing_counts_from_here(tmp_path: Path, left: str) -> None:
    (tmp_path / "run.evaluation").write_bytes(left.encode(errors="surrogateescape"))
    replica = candidate(tmp_path)
    assert not replica.is_due(25)
    assert replica.is_due(30)


def test_replicas_that_cannot_share_a_file_all_evaluate_and_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    replicas = [candidate(tmp_path / "file") for _ in range(2)]
    assert not any(replica.is_due(3) for replica in replicas)
    assert all(replica.is_due(10) for replica in replicas)
    for replica in replicas:
        replica.record_done(10)
    assert not any(replica.is_due(11) for replica in replicas)
    assert caplog.text.count("this replica evaluates, and so may others") == 2
