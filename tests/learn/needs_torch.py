"""The marks of tests that run the learner, which needs PyTorch."""

import importlib.util

import pytest

NEEDS_TORCH = [
    pytest.mark.processes,
    pytest.mark.nightly,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="PyTorch is not installed; `pip install '.[learn]'` brings it",
    ),
]
