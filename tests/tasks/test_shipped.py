"""What is shipped is what the installed library says."""

from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.shipped import Offer, ladder_heights, proven_tasks, shipped


async def test_what_is_shipped_is_what_the_library_offers(pool: TaskPool) -> None:
    offer = shipped()
    assert offer is not None, "of another version of reasoning-gym: make docs"
    assert offer == Offer(await pool.discover(), await pool.ladders())


def test_all_tasks_but_those_that_failed_are_known_to_build_in_this_version_alone() -> None:
    offer = shipped()
    assert offer is not None
    assert offer.discovery.failures == {}
    assert proven_tasks() == offer.discovery.categories.keys()
    assert proven_tasks("0.0.1") == frozenset()


def test_another_version_is_asked_itself() -> None:
    assert shipped("0.0.1") is None


def test_every_task_has_a_height() -> None:
    offer = shipped()
    assert offer is not None
    assert ladder_heights() == {task: len(ladder.levels) for task, ladder in offer.ladders.items()}
