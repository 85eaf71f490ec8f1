"""A module whose import uses two seconds of the processor."""

import time

end = time.process_time() + 2.0
while time.process_time() < end:
    pass


def same(answer: str | None, oracle: str) -> float:
    return float(answer == oracle)
