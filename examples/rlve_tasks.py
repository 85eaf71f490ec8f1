"""The environments of RLVE, for `task_modules`: `pip install rlve-gym networkx sympy`.

A task is named after its environment, such as `rlve_Sorting` after `Sorting`. Level d has the
parameters of RLVE's difficulty d.
"""

import copy
import random as global_random
import sys
from types import ModuleType

import numpy

from reasoning_gym_environment import task

# RLVE's base class seeds torch, from which no environment draws. Importing it takes seconds
# and 200 MB in every worker process, so an empty module stands in for it.
torch = sys.modules.get("torch")
sys.modules["torch"] = ModuleType("torch")
from Gym.environments import identifier2environment  # noqa: E402 - it needs the line above
from Gym.parameter_controllers import identifier2controller  # noqa: E402 - likewise

if torch is None:
    del sys.modules["torch"]
else:
    sys.modules["torch"] = torch

LEVELS = 10
"""RLVE's difficulty has no end; from about 10 on, an item can take many seconds to make."""

SEVERAL_RIGHT = "several answers are right"
ROUNDED = "a rounded number is right"
NEARLY_RIGHT = {
    "DifferenceConstraintSystem": SEVERAL_RIGHT,
    "ImpParty": SEVERAL_RIGHT,
    "MYJ": SEVERAL_RIGHT,
    "MaximumAchromaticNumber": SEVERAL_RIGHT,
    "Maze": SEVERAL_RIGHT,
    "MinimumChromaticNumber": SEVERAL_RIGHT,
    "MinimumChromaticNumber_SegmentOverlap": SEVERAL_RIGHT,
    "MinimumHarmoniousChromaticNumber": SEVERAL_RIGHT,
    "PolynomialMinimum": ROUNDED,
    "RootExtraction": ROUNDED,
    "SmallestCircle": ROUNDED,
    "StringReversalConstruction": SEVERAL_RIGHT,
    "TetrisAttack": SEVERAL_RIGHT,
}
"""Why most answers that are nearly the reference answer are right, by environment."""


def parameters_of(identifier, level):
    """Return the parameters, one of which an item of a difficulty is made with."""
    controller = identifier2controller[identifier]()
    for _ in range(level):
        controller.update()
    return controller.get_parameter_list()


def add_task(identifier):
    """Register an environment as a task."""
    environment_class = identifier2environment[identifier]

    def make(random, level):
        environment = environment_class()
        # Not by `generator`, which gives up after ten seconds on the wall, in a thread that
        # runs on: on a busy machine, a seed would have another item.
        environment.seed = random.randrange(2**32)
        environment.parameter = copy.deepcopy(
            random.choice(parameters_of(identifier, level))
        )
        global_random.seed(environment.seed)
        numpy.random.seed(environment.seed)
        environment._generate()
        if environment.parameter is None:
            raise ValueError(f"{identifier} has no item of seed {environment.seed}")
        return environment

    def generate(random, level):
        # RLVE takes an empty text for an answer, which no completion can give here.
        answer = ""
        while answer == "":
            environment = make(random, level)
            answer = environment.parameter.get("reference_answer")
        question = environment.prompt_generator()
        return (
            question,
            None if answer is None else str(answer),
            environment.get_config(),
        )

    def verify(answer, config):
        environment = environment_class()
        environment.set_config(config)
        result = environment.verifier(f"<answer>{answer}</answer>")
        # The rewards of wrong answers, in the wrong form above all, are below 0.
        return 1.0 if result["accuracy"] else max(result["reward"], 0.0)

    generate.__name__ = f"rlve_{identifier}"
    reason = NEARLY_RIGHT.get(identifier)
    waive = {"near_miss": reason} if reason else {}
    task(LEVELS, verifier=verify, waive=waive)(generate)


for name in identifier2environment:
    add_task(name)
