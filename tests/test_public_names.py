"""What is public: the package's `__all__`, the integrations, and what the reference page shows."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import reasoning_gym_environment

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "reasoning_gym_environment"
PACKAGES = sorted(path.parent for path in FOLDER.rglob("*/__init__.py") if path.parent != FOLDER)

INTEGRATIONS = {
    "inspect_ai": ["reasoning_gym"],
    "nemo_gym": ["nemo_gym_row"],
    "shared": ["evaluation_problems", "shared_gym"],
    "skyrl": ["ReasoningGymTextEnv"],
    "tinker": ["ReasoningGymGroupBuilder", "ReasoningGymProblemEnv"],
    "trl": ["ReasoningGymReward", "problem_dataset", "stream_dataset"],
