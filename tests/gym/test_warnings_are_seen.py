"""Warnings of the package in a program of Python: seen on standard error, each once."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

WARNS = """
import contained_functions
from disabled_protections import UNFILTERED

from reasoning_gym_environment import contain
from reasoning_gym_environment.sandbox import functions

functions.PROGRAM = UNFILTERED
for _ in range(2):
    with contain(contained_functions.__file__ + ":misbehave", processes=1) as reward:
        print([reward("raises") for _ in range(3)])
"""


def errors_of(program: str) -> str:
    """Run a program, and return what it wrote to standard error."""
    path = os.pathsep.join(sys.path)  # with the programs of tests
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "configures",
    ["", "import logging\nlogging.basicConfig()\n"],
    ids=["nobody", "the program"],
)
def test_a_warning_is_seen_once_whoever_configures_logging(configures: str) -> None:
    lines = errors_of(configures + WARNS).splitlines()
    assert len([line for line in lines if "call filter: left out" in line]) == 1
    # One for each of the two functions, and none for the errors that follow.
    assert len([line for line in lines if ":misbehave raised" in line]) == 2
    assert len(lines) == 3


def test_a_program_that_silences_the_package_sees_nothing() -> None:
    silences = (
        "import logging\n"
        "logging.getLogger('reasoning_gym_environment').addHandler(logging.NullHandler())\n"
    )
    assert errors_of(silences + WARNS) == ""
