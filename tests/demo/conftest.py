"""One tokenizer for all tests of the demo."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from reasoning_gym_environment.demo.tokenizer import build_tokenizer


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: str) -> Any:
    return AutoTokenizer.from_pretrained(tokenizer_folder)
