"""What one verifier host scores in a second, by task: groups of eight, one of them right.

python benchmarks/scoring.py --groups 5
"""

from __future__ import annotations

import argparse
import statistics
import time

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.tasks.facts import EXECUTES_ANSWERS

WRONG = ("7", "x", "[1, 2, 3]", "a b c", "0", "no", "(1 + 2) * 3")


def seconds_of(gym: ReasoningGym, task: str, groups: int) -> list[float]:
    """Seconds that each group of eight completions took, after one that warmed the host."""
    seconds = []
    for problem in gym.problems(task, count=groups + 1, seed=1):
        answers = [problem.oracle or "?", *WRONG]
        begin = time.perf_counter()
        gym.score_many((problem, f"<answer>{answer}</answer>") for answer in answers)
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=5)
    options = parser.parse_args()
    with ReasoningGym(processes=1) as gym:
        found = {
            task.name: statistics.median(seconds_of(gym, task.name, options.groups))
            for task in gym.tasks()
        }
    executing = [found[task] for task in sorted(EXECUTES_ANSWERS)]
    others = [
        seconds for task, seconds in found.items() if task not in EXECUTES_ANSWERS
    ]
    for kind, all_seconds in (("execute answers", executing), ("read answers", others)):
        middle, mean = statistics.median(all_seconds), statistics.fmean(all_seconds)
        print(
            f"{len(all_seconds):3d} tasks that {kind}: a group of 8 takes {middle * 1e3:.1f} ms "
            f"(median), {mean * 1e3:.1f} ms (mean): {8 / mean:.0f} answers a second"
        )
    mean = statistics.fmean(found.values())
    print(f"all: {mean * 1e3:.1f} ms (mean): {8 / mean:.0f} answers a second")
    for task, seconds in sorted(found.items(), key=lambda pair: -pair[1])[:12]:
        print(f"{task:26s} {seconds * 1e3:8.1f} ms")


if __name__ == "__main__":
    main()
