"""A module whose import uses a second of the processor."""

import time

end = time.process_time() + 1.0
while time.process_time() < end:
    pass


def same(answer: str | None, oracle: str) -> float:
    return float(answer == oracle)
