"""The whole proof of the ladders, at every level of every task."""

import pytest

from reasoning_gym_environment.runtime.ladder_proof import faults, prove_ladders
from reasoning_gym_environment.runtime.task_pool import TaskPool

ITEMS = 30


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_every_level_of_every_ladder_is_sound(pool: TaskPool) -> None:
    proofs = await prove_ladders(pool, await pool.ladders(), items=ITEMS, at_once=2)
    assert [fault for of_task in proofs for fault in faults(of_task)] == []
