"""The whole proof of the ladders, at every level of every task."""

from collections import Counter

import pytest

from reasoning_gym_environment.audit.ladder_proof import faults, prove_ladders
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool

ITEMS = 30
PROCESSES = 2


@pytest.mark.slow
async def test_every_level_of_every_ladder_is_sound() -> None:
    async with TaskPool(PoolSettings(processes=PROCESSES), Counter()) as pool:
        ladders = await pool.ladders()
        proofs = await prove_ladders(pool, ladders, items=ITEMS, at_once=PROCESSES)
    assert [fault for of_task in proofs for fault in faults(of_task)] == []
