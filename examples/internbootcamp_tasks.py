"""The bootcamps of InternBootcamp, for `task_modules`, from a checkout of its repository.

The environment variable INTERNBOOTCAMP names the checkout, and the setting `task_environment` names
the variable. A task is named after its class, such as `internbootcamp_Game24` after
`Game24bootcamp`. Its levels are the parameters that the checkout lists in examples/pipelines. These
lists have no order, so the parameters with the larger numbers are taken for the harder ones.
"""

import ast
import json
import os
import random as global_random
import re
import sys
from copy import deepcopy
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

import numpy

from reasoning_gym_environment import task

if "INTERNBOOTCAMP" not in os.environ:
    raise RuntimeError(
        "INTERNBOOTCAMP must name a checkout of InternBootcamp, and the setting task_environment "
        "must have INTERNBOOTCAMP"
    )
CHECKOUT = Path(os.environ["INTERNBOOTCAMP"])

ATTEMPTS = 20
"""Some parameters often make no item: InternBootcamp's own pipeline then tries again, as we do."""

MARKS = (
    ("", ""),
    ("[answer]", "[/answer]"),
    ("\\boxed{", "}"),
    ("[[", "]]"),
    ("```json\n", "\n```"),
    ("```python\n", "\n```"),
    ("```\n", "\n```"),
    ("[ANSWER]", "[/ANSWER]"),
)
"""What a bootcamp finds an answer between. A model may write these marks between the answer tags,
or the answer alone."""

SEVERAL_RIGHT = {"Cehabandprefixmexsbootcamp"}
"""Bootcamps with several right answers, of which most that are near the found one are some."""


def prepare_imports():
    """Make each module importable alone: the package's own `__init__` imports all 1,070.

    Some of them change settings of the process, so each is imported when its task is used.
    """
    for name in ("internbootcamp", "internbootcamp.bootcamp"):
        package = ModuleType(name)
        package.__path__ = [str(CHECKOUT / name.replace(".", "/"))]
        sys.modules[name] = package
    # Most modules import the base class from this shorter name.
    sys.modules["bootcamp"] = package
    package.Basebootcamp = import_module("internbootcamp.bootcamp.base").Basebootcamp
    sys.path.append(str(CHECKOUT / "internbootcamp"))


def plain_name(name):
    """Return what the name of a class and that of its list of parameters have in common."""
    return re.sub(r"^codecontests\d+|_train\.json$|bootcamp$|_", "", name).lower()


def total(value):
    """Return the sum of the numbers in parameters."""
    if isinstance(value, dict):
        return sum(map(total, value.values()))
    if isinstance(value, list):
        return sum(map(total, value))
    return value if isinstance(value, int | float) else 0


def levels_by_name():
    """Return the parameters of each level, by the plain name of the bootcamp."""
    levels = {}
    for folder in ("autogen_configs", "puzzle_configs"):
        for file in (CHECKOUT / "examples" / "pipelines" / folder).glob("*_train.json"):
            # Without parameters, the bootcamp has its defaults.
            parameters = json.loads(file.read_text() or "[]") or [{}]
            levels[plain_name(file.name)] = sorted(parameters, key=total)
    return levels


def instance(bootcamp_class, parameters):
    """Return a bootcamp with parameters, or with those of them that it knows by name."""
    try:
        return bootcamp_class(**parameters)
    except (
        TypeError
    ):  # many hand what they don't know to a base class that takes nothing
        known = signature(bootcamp_class).parameters
        return bootcamp_class(
            **{name: parameters[name] for name in parameters if name in known}
        )


def seed_generators(seed):
    """Seed the global generators, from which bootcamps draw."""
    global_random.seed(seed)
    numpy.random.seed(seed)


def make_case(bootcamp_class, parameters, random):
    """Return an item's question and what the verifier needs of it."""
    # Some lists of parameters have a seed, with which each new bootcamp would make the same item.
    takes_seed = "seed" in {*parameters, *signature(bootcamp_class).parameters}
    for attempts_left in reversed(range(ATTEMPTS)):
        seed = random.randrange(2**32)
        seed_generators(seed)
        if takes_seed:
            parameters = {**parameters, "seed": seed}
        try:
            bootcamp = instance(bootcamp_class, parameters)
            seed_generators(
                seed
            )  # again, as some constructors seed them from the clock
            case = bootcamp.case_generator()
            question = bootcamp.prompt_func(case)
            break
        except Exception:
            if not attempts_left:
                raise
    return question, case


def score(bootcamp_class, answer, case):
    """Return what the bootcamp's verifier pays for the text between the answer tags."""
    for before, after in MARKS:
        output = before + answer + after
        try:
            is_found = bootcamp_class.extract_output(output) is not None
        except Exception:  # noqa: BLE001 - as in `verify_score`: no answer in this form
            continue
        if is_found:
            # Neither a short output nor one without thoughts is wrong: it's the answer alone.
            return bootcamp_class.verify_score(
                output, case, short_penalty=False, format_penalty=False
            )
    return 0.0


def texts_of(value):
    """Return how an answer may be written: as Python, or as words and lines."""
    if isinstance(value, str | int | float):
        return [str(value)]
    if not isinstance(value, list | tuple):
        return []
    lines = [
        " ".join(map(str, row)) if isinstance(row, list | tuple) else str(row)
        for row in value
    ]
    return [str(value), " ".join(lines), "\n".join(lines)]


def find_answer(bootcamp_class, case):
    """Return the first part of an item that its verifier takes for right; None without one.

    Bootcamps have no field for the right answer, but many keep it in the item.
    """
    for value in case.values() if isinstance(case, dict) else ():
        for text in texts_of(value):
            # A copy, as some verifiers change the item.
            if text.strip() and score(bootcamp_class, text, deepcopy(case)) == 1:
                return text
    return None


def add_task(module_name, class_name, levels):
    """Register a bootcamp as a task."""

    def bootcamp_class():
        return getattr(
            import_module(f"internbootcamp.bootcamp.{module_name}"), class_name
        )

    def generate(random, level):
        chosen_class = bootcamp_class()
        question, case = make_case(chosen_class, levels[level], random)
        return question, find_answer(chosen_class, case), case

    def verify(answer, case):
        return score(bootcamp_class(), answer, case)

    generate.__name__ = f"internbootcamp_{class_name.removesuffix('bootcamp')}"
    is_several = class_name in SEVERAL_RIGHT
    waive = {"near_miss": "several answers are right"} if is_several else {}
    task(len(levels), verifier=verify, waive=waive)(generate)


def add_tasks():
    """Register each bootcamp that has a list of parameters."""
    levels = levels_by_name()
    package = CHECKOUT / "internbootcamp" / "bootcamp" / "__init__.py"
    modules = {
        imported.name: statement.module
        for statement in ast.parse(package.read_bytes()).body
        if isinstance(statement, ast.ImportFrom)
        for imported in statement.names
    }
    for class_name, module_name in modules.items():
        if plain_name(class_name) in levels:
            add_task(module_name, class_name, levels[plain_name(class_name)])


prepare_imports()
add_tasks()
