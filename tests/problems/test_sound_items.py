"""Faulty items are drawn again, on every path that draws problems."""

from collections import Counter
from typing import Any

import pytest
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.evaluation.planning import EvaluationSet, planned_recipes
from reasoning_gym_environment.problems.seeds import redrawn_seed
from reasoning_gym_environment.problems.stream import (
    MAX_SKIPPED,
    is_skipped,
    skip_faulty,
)
from reasoning_gym_environment.records import Fault, FaultKind, Problem, Recipe


class Pool:
    """Makes items that have a fault of one kind for chosen seeds."""

    def __init__(self, kind: FaultKind, *seeds: int, all_faulty: bool = False) -> None:
        self.fault = Fault(kind=kind, detail="")
        self.seeds = seeds
        self.all_faulty = all_faulty

    async def generate(self, recipe: Recipe) -> Problem:
        faulty = self.all_faulty or recipe.seed in self.seeds
        fault = self.fault if faulty else None
        question = str(recipe.seed)
        return Problem(
            recipe=recipe, question=question, oracle="1", entry=b"", fault=fault
        )


@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize("kind", FaultKind)
async def test_an_ambiguous_item_is_asked_in_training_alone(
    kind: FaultKind, seed: int
) -> None:
    counts: Counter[str] = Counter()
    made = await skip_faulty(Pool(kind, seed).generate, counts)(
        Recipe(task="gcd", seed=seed)
    )
    asked = kind is FaultKind.AMBIGUOUS and seed % 2 == 0
    assert made.recipe.seed == (seed if asked else redrawn_seed(seed))
    assert counts["sampling/faulty_items_redrawn"] == (not asked)
    assert counts["sampling/faulty_items_redrawn/gcd"] == (not asked)


@pytest.mark.parametrize("seed", [0, 1, 2**53 - 2, 2**53 - 1])
def test_a_redrawn_item_stays_in_its_split(seed: int) -> None:
    assert redrawn_seed(seed) % 2 == seed % 2
    assert 0 <= redrawn_seed(seed) < 2**53


async def test_a_task_whose_items_are_all_faulty_is_an_error_that_names_it() -> None:
    generate = skip_faulty(
        Pool(FaultKind.UNANSWERABLE, all_faulty=True).generate, Counter()
    )
    with pytest.raises(
        GenerationError, match=f"gcd: {MAX_SKIPPED} items in a row are faulty"
    ):
        await generate(Recipe(task="gcd", seed=0))


async def test_evaluation_draws_the_same_items_whatever_their_number() -> None:
    def plan(count: int) -> list[tuple[Recipe, float | None]]:
        return planned_recipes(
            tasks=["gcd"],
            ladders={},
            eval_seed=1,
            num_eval_samples_per_task=count,
            eval_difficulties=[],
        )

    planned = [recipe.seed for recipe, _ in plan(3)]
    generate = skip_faulty(Pool(FaultKind.FALSE_LABEL, planned[1]).generate, Counter())
    few, many = [
        [
            item.problem.recipe.seed
            for item in await EvaluationSet(generate, plan(count)).items()
        ]
        for count in (3, 6)
    ]
    assert few == [planned[0], redrawn_seed(planned[1]), planned[2]] == many[:3]


@pytest.mark.asyncio(loop_scope="session")
async def test_the_python_api_asks_no_faulty_item_but_regenerates_one(
    stock: WorkerStock,
) -> None:
    options: Any = {"processes": 1, "start_worker": stock.lend}
    async with (
        AsyncReasoningGym(**options) as gym,
        AsyncReasoningGym(**options, skip_faulty_items=False) as all_items,
    ):
        drawn = await all_items.problems("family_relationships", count=40)
        faulty = [problem for problem in drawn if is_skipped(problem)]
        assert 0 < len(faulty) < 20
        sound = await gym.problems("family_relationships", count=40)
        assert not any(map(is_skipped, sound))
        assert [s == d for s, d in zip(sound, drawn, strict=True)] == [
            not is_skipped(problem) for problem in drawn
        ]
        assert gym.counts["sampling/faulty_items_redrawn/family_relationships"] >= len(
            faulty
        )
        assert await gym.problem(faulty[0].recipe) == faulty[0]
        held_out = await gym.problems("family_relationships", count=40, split="eval")
        assert not any(problem.fault for problem in held_out)
        stream = await gym.stream(["family_relationships"])
        assert not any([is_skipped(await stream.next()) for _ in range(40)])
