"""A module with a task whose generator and verifier each use two seconds of the processor."""

import time
from dataclasses import dataclass
from typing import Any

from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import register_dataset

SECONDS = 2.0


@dataclass
class SlowConfig:
    seed: int | None = None
    size: int = 500


def work() -> None:
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        pass


class Slow(ProceduralDataset):
    def __init__(self, config: SlowConfig) -> None:
        super().__init__(config, config.seed, config.size)

    def __getitem__(self, index: int) -> dict[str, Any]:
        work()
        answer = str(self.seed)
        return {"question": f"Say {answer}.", "answer": answer, "metadata": {}}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        work()
        return float(answer == entry["answer"])


class Late(Slow):
    """Its verifier imports what takes long when it is called."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"question": "Say 1.", "answer": "1", "metadata": {}}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        import slow_import

        return slow_import.same(answer, entry["answer"])


register_dataset("late", Late, SlowConfig)
register_dataset("slow", Slow, SlowConfig)
