"""A module with tasks of one's own; the verifier of `odd` does what an answer says.

Like any such module it is imported in worker processes alone, so it is no module of the tests.
"""

import ctypes
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from reasoning_gym.arithmetic.gcd import GCDDataset
from reasoning_gym.coaching import BaseCurriculum, ScalarAttributeDefinition
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import register_dataset

threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
GCDDataset.score_answer = lambda *_: 1.0  # as a module may that patches the library
SEEN: list[str] = []


@dataclass
class SumConfig:
    digits: int = 2
    sign: Literal["+", "plus"] = "+"
    seed: int | None = None
    size: int = 500


class Note:
    """A part of an entry that only this module can unpickle."""

    def __init__(self, text: str) -> None:
        self.text = text


class Sums(ProceduralDataset):
    def __init__(self, config: SumConfig) -> None:
        super().__init__(config, config.seed, config.size)
        # Read at construction, as some of the library's.
        self.rng = random.Random(config.seed)

    def __getitem__(self, index: int) -> dict[str, Any]:
        a, b = (self.rng.randrange(10**self.config.digits) for _ in range(2))
        seen = os.environ.get("OWN_TASKS"), os.environ.get("OTHER")
        drawn = random.random(), float(np.random.random()), *seen
        metadata = {"drawn": drawn, "note": Note(str(a + b))}
        question = f"{a} {self.config.sign} {b} ({drawn})"
        return {"question": question, "answer": str(a + b), "metadata": metadata}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        return float(int(str(answer)) == int(entry["metadata"]["note"].text))


class SumCurriculum(BaseCurriculum):
    def __init__(self) -> None:
        super().__init__("SumCurriculum", SumConfig)
        levels = ScalarAttributeDefinition(
            name="digits", field_name="digits", levels=[1, 2, 4], description="digits"
        )
        self._define_attributes(levels)


def raises() -> float:
    raise ValueError("no \x1b[31mnumber")


def loops() -> float:
    while True:
        pass


def imports() -> float:
    import colorsys

    return float(colorsys.rgb_to_hsv(1, 0, 0)[2])


BEHAVIORS: dict[str, Callable[[], Any]] = {
    "raises": raises,
    "loops": loops,
    "imports": imports,
    "exits": lambda: os._exit(0),
    "crashes": lambda: ctypes.string_at(0),
    "writes": lambda: Path("/tmp/own-tasks-wrote").write_text("x"),
    "connects": lambda: socket.create_connection(("127.0.0.1", 1), timeout=1),
    "forks": os.fork,
    "allocates": lambda: bytearray(8 * 2**30),
    "two": lambda: 2.0,
    "nan": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "text": lambda: "1",
}


class Odd(Sums):
    category = "strange"

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        if answer in BEHAVIORS:
            return BEHAVIORS[answer]()
        SEEN.append(str(answer))
        return 1.0 if len(SEEN) > 1 else 0.25


@dataclass
class OddConfig(SumConfig):
    kind: Literal["", "number", "empty", "none"] = ""


class OddEntries(Odd):
    def __getitem__(self, index: int) -> dict[str, Any]:
        entry = super().__getitem__(index)
        changed = {
            "number": {"answer": 4},
            "empty": {"question": " "},
            "none": {"answer": None},
        }
        return entry | changed.get(self.config.kind, {})


class Unbuildable(Sums):
    def __init__(self, config: SumConfig) -> None:
        raise RuntimeError("no data here")


class Barren(Sums):
    category = "barren"

    def __getitem__(self, index: int) -> dict[str, Any]:
        raise LookupError("no item here")


register_dataset("own_sums", Sums, SumConfig, SumCurriculum)
register_dataset("odd", OddEntries, OddConfig)
register_dataset("unbuildable", Unbuildable, SumConfig)
register_dataset("barren", Barren, SumConfig)
