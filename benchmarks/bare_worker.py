"""One process of the limit: generates recipes and scores answers in a bare loop.

    bare_worker.py FILE: a pickle of ([(recipe, answers)], contained)

Prints "ready", waits for a line, works, and exits.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from pathlib import Path

from reasoning_gym_environment.sandbox import _verifier_host as verifier_host
from reasoning_gym_environment.sandbox._protocol import EntryAnswers
from reasoning_gym_environment.tasks.datasets import Datasets


def main(path: str) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    jobs, contained = pickle.loads(Path(path).read_bytes())
    generators, hosts = Datasets(), Datasets()
    verifier_host.warm_up(hosts)
    print("ready", file=out, flush=True)
    sys.stdin.readline()
    silent, _ = os.pipe()
    host = verifier_host.VerifierHost(hosts)
    for recipe, answers in jobs:
        problem = generators.problem(recipe)
        if contained:
            request = EntryAnswers(
                task=recipe.task,
                parameters=recipe.parameters,
                entry=problem.entry,
                answers=tuple(answers),
                timeout=5.0,
                patience=20.0,
                group_timeout=120.0,
            )
            host.verify(request, silent)
            continue
        score = hosts.get(recipe.task, recipe.parameters).score_answer
        for answer in answers:
            for text in (answer, f"<answer>{answer}</answer>"):
                with contextlib.suppress(Exception):
                    score(text, pickle.loads(problem.entry))


if __name__ == "__main__":
    main(sys.argv[1])
