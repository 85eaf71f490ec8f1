"""The snapshot is what the installed library offers."""

from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.catalogue import (
    LibrarySnapshot,
    bundled_snapshot,
    ladder_heights,
    proven_tasks,
)


async def test_the_snapshot_is_what_the_library_offers(pool: TaskPool) -> None:
    snapshot = bundled_snapshot()
    assert snapshot is not None, "of another version of reasoning-gym: make docs"
    assert snapshot == LibrarySnapshot(await pool.discover(), await pool.ladders())


def test_all_tasks_but_those_that_failed_are_known_to_build_in_this_version_alone() -> None:
    snapshot = bundled_snapshot()
    assert snapshot is not None
    assert snapshot.discovery.failures == {}
    assert proven_tasks() == snapshot.discovery.categories.keys()
    assert proven_tasks("0.0.1") == frozenset()


def test_another_version_is_asked_itself() -> None:
    assert bundled_snapshot("0.0.1") is None


def test_every_task_has_a_height() -> None:
    snapshot = bundled_snapshot()
    assert snapshot is not None
    assert ladder_heights() == {
        task: len(ladder.levels) for task, ladder in snapshot.ladders.items()
    }
