"""The environment against llama.cpp's server with a real model: `make test-llama`.

It is the Python package's, which differs from vLLM: it answers to any model's name, refuses values
that vLLM takes with status 500, ignores `n`, and returns no token ids.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from real_runs import MODEL, batches_of_serve, free_port, options, run_command, running
from transformers import AutoTokenizer

from reasoning_gym_environment.storage.dumps import read_dump

pytestmark = [pytest.mark.real, pytest.mark.processes]

LLAMA_PYTHON = os.environ.get("LLAMA_PYTHON", "python")
LLAMA_MODEL = os.environ.get("LLAMA_MODEL", "model.gguf")
SMALL = {"max_token_length": 192, "group_size": 2}


@pytest_asyncio.fixture(scope="module")
async def llama(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    port, log = free_port(), tmp_path_factory.mktemp("llama") / "llama.log"
    command = [
        LLAMA_PYTHON,
        "-m",
        "llama_cpp.server",
        "--model",
        LLAMA_MODEL,
        "--n_ctx",
        "1024",
    ]
    url = f"http://127.0.0.1:{port}"
    async with running([*command, "--port", str(port)], log, f"{url}/v1/models"):
        yield url


def rollouts_of(folder: Path, pattern: str) -> list[dict[str, Any]]:
    [file] = folder.glob(pattern)
    return [rollout for row in read_dump(file).rows for rollout in row["rollouts"]]


async def test_evaluate_counts_tokens_as_the_server_does(
    llama: str, tmp_path: Path
) -> None:
    changes = {**SMALL, "tokenizer_name": "", "eval_attempts": 2}
    said = await run_command("evaluate", *options(llama, "openai", tmp_path, **changes))
    assert (
        "returns only text: no token ids and no logprobs; each completion is a request of its own, "
        "since it takes no n above 1" in said
    )
    rollouts = rollouts_of(tmp_path, "evaluation_*/samples.jsonl")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    assert len(rollouts) == 4
    for rollout in rollouts:
        *prompt, completion = rollout["conversation"]
        encoded = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, return_dict=True
        )
        ours = len(encoded["input_ids"])
        assert rollout["status"] != "unscored"
        assert abs(rollout["tokens"] - rollout["completion_tokens"] - ours) <= 2
        own = len(tokenizer.encode(completion["content"]))
        assert abs(rollout["completion_tokens"] - own) <= 3


async def test_process_needs_no_tokenizer(llama: str, tmp_path: Path) -> None:
    changes = {**SMALL, "tokenizer_name": "", "total_steps": 2}
    await run_command("process", *options(llama, "openai", tmp_path, **changes))
    assert len(rollouts_of(tmp_path, "*rollouts*.jsonl")) == 4


async def test_serve_feeds_a_trainer_with_tokens_of_the_text(
    llama: str, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    changes = {**SMALL, "include_messages": True}
    batches = await batches_of_serve(
        llama, "openai", tmp_path, batch_size=4, steps=1, **changes
    )
    groups = [group for batch in batches for group in batch]
    assert len(groups) == 2
    for group in groups:
        assert not group["inference_logprobs"]
        rows = zip(group["tokens"], group["masks"], group["messages"], strict=True)
        for tokens, masks, messages in rows:
            prompt = masks.count(-100)
            assert tokenizer.decode(tokens[:prompt]).endswith("<|im_start|>assistant\n")
            text = tokenizer.decode(tokens[prompt:], skip_special_tokens=True)
            assert text == messages[-1]["content"]


async def test_serve_without_a_tokenizer_is_refused(llama: str, tmp_path: Path) -> None:
    given = options(llama, "openai", tmp_path, tokenizer_name="")
    said = await run_command("serve", *given, status=2)
    assert said.splitlines()[-1] == (
        "error: serve trains on tokens, so it needs the model's tokenizer: set --env.tokenizer_name"
    )
