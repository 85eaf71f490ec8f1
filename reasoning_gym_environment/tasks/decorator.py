"""`task`: a task of one's own from a function, without the library's classes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from ..errors import ConfigurationError
from ..util.values import shorten

Generate = Callable[[random.Random, int], tuple[str, str, Any]]
Generator = TypeVar("Generator", bound=Generate)
Verifier = Callable[[str, Any], float]
Solver = Callable[[str, Any], str]


class _Parts(NamedTuple):
    """What a task is made of beside its generator."""

    levels: int
    verifier: Verifier | None
    solve: Solver | None
    tolerance: float
    waive: Mapping[str, str]


def task(
    levels: int,
    *,
    verifier: Verifier | None = None,
    solve: Solver | None = None,
    tolerance: float = 0.0,
    waive: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Generator], Generator]:
    """Register a function as a task of its name, with levels, in reasoning-gym's registry.

    The function gets a source of random numbers and a level, and returns a question, its answer,
    and data for the verifier. It stays callable. `task_modules` makes its module known to a run.
    In the program that is started, `__main__`, nothing is registered: worker processes import the
    file under its own name.

    Args:
        levels: how many there are; the function gets 0, the easiest, to `levels - 1`.
        verifier: returns the score, in [0, 1], of an answer by the data. Without one, only a text
            that equals the answer is right.
        solve: answers the question a second time, by another way than the function, from the
            question and the data. `prove` compares its answers with the function's.
        tolerance: how far from the answer, relative to it, the verifier takes a number for right.
        waive: why findings of `prove` are right as they are, by their names, such as
            {"near_miss": "1 % is near enough"}.

    Example:
        @task(levels=8)
        def addition(random, level):
            terms = [random.randrange(1000) for _ in range(level + 2)]
            return f"What is {' + '.join(map(str, terms))}?", str(sum(terms)), None
    """
    if type(levels) is not int or levels < 1:
        raise ConfigurationError(
            f"levels must be an integer ≥ 1, got {shorten(levels)}: write @task(levels=8)"
        )
    for argument, function in (("verifier", verifier), ("solve", solve)):
        if function is not None and not callable(function):
            raise ConfigurationError(
                f"{argument} must be a function, got {shorten(function)}"
            )
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise ConfigurationError(
            f"tolerance must be a number from 0 to below 1, got {shorten(tolerance)}: "
            "0.01 takes 101 for 100"
        )
    if tolerance and verifier is None:
        raise ConfigurationError(
            "tolerance says what a verifier takes for right: add the verifier"
        )
    _require_reasons(waive)
    parts = _Parts(levels, verifier, solve, float(tolerance), waive)

    def register(generator: Generator) -> Generator:
        if generator.__module__ not in ("__main__", "__mp_main__"):
            _register(generator, parts)
        return generator

    return register


def _require_reasons(waive: object) -> None:
    """Raise ConfigurationError unless each waived finding has a reason."""
    if isinstance(waive, Mapping) and all(
        isinstance(text, str) and text.strip()
        for pair in waive.items()
        for text in pair
    ):
        return
    raise ConfigurationError(
        'waive must map findings to reasons, such as {"near_miss": "1 % is near enough"}, got '
        f"{shorten(waive)}"
    )


def _register(generator: Generate, parts: _Parts) -> None:
    # Heavy: only workers come here.
    from reasoning_gym.coaching import BaseCurriculum, ScalarAttributeDefinition
    from reasoning_gym.factory import register_dataset

    name = generator.__name__
    levels = parts.levels

    @dataclass
    class Configuration:
        seed: int | None = None
        size: int = 500
        level: int = 0

        def validate(self) -> None:
            if not 0 <= self.level < levels:
                raise ValueError(
                    f"level must be from 0 to {levels - 1}, got {self.level}"
                )

    class Curriculum(BaseCurriculum):
        def __init__(self) -> None:
            super().__init__(name, Configuration)
            numbers = list(range(levels))
            self._define_attributes(
                ScalarAttributeDefinition(
                    name="level", field_name="level", levels=numbers
                )
            )

    register_dataset(name, _dataset_class(generator, parts), Configuration, Curriculum)


def _dataset_class(generator: Generate, parts: _Parts) -> type[Any]:
    """Return the class of a task's datasets."""
    from reasoning_gym.dataset import ProceduralDataset

    verifier = parts.verifier
    solver = parts.solve

    class Dataset(ProceduralDataset):
        # The task's origin and category come from the module's name.
        __module__ = generator.__module__
        # What `prove` reads of any task's class.
        checks_labels = verifier is not None
        tolerance = parts.tolerance
        waive: ClassVar = dict(parts.waive)

        if solver is not None:

            @staticmethod
            def solve(entry: dict[str, Any]) -> str:
                return solver(entry["question"], entry["metadata"]["data"])

        def __init__(self, config: Any) -> None:
            super().__init__(config, seed=config.seed, size=config.size)

        def __getitem__(self, index: int) -> dict[str, Any]:
            source = random.Random(self.seed + index)
            item = generator(source, self.config.level)
            if not isinstance(item, tuple) or len(item) != 3:
                raise TypeError(
                    f"it must return (question, answer, data), got {shorten(item)}"
                )
            question, answer, data = item
            metadata = {
                "source_dataset": generator.__name__,
                "source_index": index,
                "data": data,
            }
            return {"question": question, "answer": answer, "metadata": metadata}

        def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
            if verifier is None:
                return float(answer == entry["answer"])
            score = verifier(answer, entry["metadata"]["data"])
            if score is None or not 0 <= score <= 1:
                raise ValueError(
                    f"the verifier must return a score in [0, 1], got {score!r:.80}"
                )
            return score

    return Dataset
