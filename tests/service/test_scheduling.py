"""Flows that take turns: slow ones leave slots to the others."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from clock import Clock

from reasoning_gym_environment.records import Score, Status
from reasoning_gym_environment.service._scheduling import (
    MAX_BATCH,
    PENALTY_SECONDS,
    QUIET_SECONDS,
    SMALL_BATCH,
    FairScheduler,
    Flow,
)

pytestmark = pytest.mark.asyncio

QUICK, SLOW, NEW = (Flow("client", task) for task in ("gcd", "rush_hour", "lcm"))
SOLVED = Score(score=1.0, status=Status.SOLVED, seconds=0.01)
HUNG = Score(score=0.0, status=Status.TIMEOUT)


class Simulation:
    """A scheduler that knows a quick and a slow flow, and the slots that it granted."""

    def __init__(self, slots: int = 4) -> None:
        self.clock = Clock()
        self.scheduler = FairScheduler(slots, clock=self.clock)
        self.scheduler.record(QUICK, [SOLVED])
        self.scheduler.record(SLOW, [SOLVED, HUNG])
        self.granted: list[Flow] = []
        self.held: dict[Flow, list[AsyncExitStack]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, *flows: Flow) -> None:
        asking = [asyncio.create_task(self._hold(flow)) for flow in flows]
        for task in asking:  # one that fails unseen is logged by a later test
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.tasks += asking
        await self.settle()

    async def _hold(self, flow: Flow) -> None:
        stack = AsyncExitStack()
        await stack.enter_async_context(self.scheduler.slot(flow, patience=60))
        self.granted.append(flow)
        self.held.setdefault(flow, []).append(stack)

    async def end(self, flow: Flow) -> None:
        await self.held[flow].pop().aclose()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_slow_flows_together_have_a_quarter_of_the_slots() -> None:
    simulation = Simulation()
    other = Flow("another client", "rush_hour")
    simulation.scheduler.record(other, [HUNG])
    await simulation.ask(QUICK)
    await simulation.ask(SLOW, SLOW, other, other, QUICK, QUICK)
    assert simulation.granted == [QUICK, SLOW, QUICK, QUICK]
    await simulation.end(QUICK)
    assert len(simulation.granted) == 4, "the slot stays free for quick flows"
    await simulation.ask(SLOW)
    for flow in (SLOW, SLOW, other):
        await simulation.end(flow)
    assert simulation.granted[4:] == [SLOW, other, SLOW]


async def test_slow_flows_take_all_slots_while_nobody_else_asks() -> None:
    simulation = Simulation()
    await simulation.ask(SLOW, SLOW, SLOW, SLOW)
    assert simulation.granted == [SLOW] * 4
    await simulation.ask(QUICK, SLOW)
    await simulation.end(SLOW)
    assert simulation.granted[4:] == [QUICK]
    await simulation.end(QUICK)
    assert len(simulation.granted) == 5
    simulation.clock.now += QUIET_SECONDS + 1
    await simulation.end(SLOW)
    assert simulation.granted[5:] == [SLOW]


async def test_flows_take_turns() -> None:
    simulation = Simulation(slots=1)
    other = Flow("another client", "gcd")
    simulation.scheduler.record(other, [SOLVED])
    await simulation.ask(QUICK, QUICK, QUICK, QUICK, other)
    for flow in (QUICK, QUICK, other, QUICK):
        await simulation.end(flow)
    assert simulation.granted == [QUICK, QUICK, other, QUICK, QUICK]


async def test_a_flow_of_unknown_speed_has_one_slot() -> None:
    simulation = Simulation()
    await simulation.ask(NEW, NEW)
    assert simulation.granted == [NEW]
    simulation.scheduler.record(NEW, [SOLVED])
    await simulation.end(NEW)
    await simulation.ask(NEW)
    assert simulation.granted == [NEW] * 3


async def test_a_slow_flow_with_the_only_host_rests_as_long_as_it_worked() -> None:
    simulation = Simulation(slots=2)
    await simulation.ask(QUICK)
    await simulation.ask(SLOW, SLOW)
    assert simulation.granted == [QUICK, SLOW]
    simulation.clock.now += 0.2
    await simulation.end(SLOW)
    await simulation.ask(QUICK)
    assert simulation.granted[2:] == [QUICK]
    await simulation.end(QUICK)
    await asyncio.sleep(0.3)
    assert simulation.granted[3:] == [SLOW]


async def test_batches_have_the_size_that_the_speed_allows() -> None:
    simulation = Simulation()
    sizes = [simulation.scheduler.batch_size(flow) for flow in (QUICK, SLOW, NEW)]
    assert sizes == [MAX_BATCH, SMALL_BATCH, SMALL_BATCH]
    simulation.scheduler.record(SLOW, [SOLVED])
    assert simulation.scheduler.batch_size(SLOW) == SMALL_BATCH, "one quick batch is not enough"
    simulation.clock.now += PENALTY_SECONDS
    simulation.scheduler.record(SLOW, [SOLVED])
    assert simulation.scheduler.batch_size(SLOW) == MAX_BATCH


async def test_long_verification_makes_a_flow_slow() -> None:
    simulation = Simulation()
    for seconds, size in ((0.9, MAX_BATCH), (1.1, SMALL_BATCH)):
        simulation.scheduler.record(NEW, [Score(score=0.0, status=Status.WRONG, seconds=seconds)])
        assert simulation.scheduler.batch_size(NEW) == size


async def test_waiting_ends_with_the_patience() -> None:
    simulation = Simulation(slots=1)
    await simulation.ask(QUICK)
    with pytest.raises(TimeoutError):
        async with simulation.scheduler.slot(QUICK, patience=0.01):
            pass
    await simulation.end(QUICK)
    await simulation.ask(QUICK)
    assert simulation.granted == [QUICK, QUICK]


async def test_who_is_cancelled_leaves_its_slot() -> None:
    simulation = Simulation(slots=1)
    await simulation.ask(QUICK)
    await simulation.ask(QUICK, QUICK)
    _, waiting, next_one = simulation.tasks
    waiting.cancel()
    await simulation.settle()
    await simulation.held[QUICK].pop().aclose()  # grants a slot whose task has not run yet
    next_one.cancel()
    await simulation.settle()
    await simulation.ask(QUICK)
    assert simulation.granted == [QUICK, QUICK]
