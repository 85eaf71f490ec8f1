"""The snapshot is what the installed library offers."""

import pytest

from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks import catalogue
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


def test_all_tasks_of_the_snapshot_build() -> None:
    snapshot = bundled_snapshot()
    assert snapshot is not None
    assert snapshot.discovery.failures == {}
    assert proven_tasks() == snapshot.discovery.categories.keys()


def test_there_is_no_snapshot_for_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "version", lambda _: "0.0.1")
    assert bundled_snapshot() is None
    assert proven_tasks() == frozenset()


def test_every_task_has_a_height() -> None:
    snapshot = bundled_snapshot()
    assert snapshot is not None
    assert ladder_heights() == {
        task: len(ladder.levels) for task, ladder in snapshot.ladders.items()
    }
