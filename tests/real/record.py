"""Records what a real server answers to the environment's own requests, for the contract tests.

    python tests/real/record.py URL MODEL_FOLDER RECORDING.json

The start's requests and one small group in each dialect, then refusals. Recordings are small: the
prompt is short and completions have few tokens.

`vllm-0.32-raw.json` is of `serve_vllm.sh` as it is, `vllm-0.32-processed.json` of the same with
`--logprobs-mode processed_logprobs`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import aiohttp
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from transformers import AutoTokenizer

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference._negotiation import (
    PROBE_TEXT,
    Requirements,
    probe,
)
from reasoning_gym_environment.inference.dialects import (
    GenerationRequest,
    SamplingParams,
)
from reasoning_gym_environment.inference.servers import ServerClient


class Recorded(ServerClient):
    """A client that also notes each request with its status and reply."""

    def __init__(self, config: Any, exchanges: list[dict[str, Any]]) -> None:
        super().__init__(config)
        self._exchanges = exchanges

    @asynccontextmanager
    async def _reply(
        self, method: str, path: str, body: Any
    ) -> AsyncIterator[memoryview]:
        asked = {"method": method, "path": path, "body": body}
        try:
            async with super()._reply(method, path, body) as reply:
                self._exchanges.append(
                    {**asked, "status": 200, "reply": json.loads(bytes(reply))}
                )
                yield reply
        except aiohttp.ClientResponseError as error:
            refused = {"error": {"message": error.message}}
            self._exchanges.append({**asked, "status": error.status, "reply": refused})
            raise


def requirements_of(tokenizer: Any, model: str) -> Requirements:
    """What a small run requires of the server."""
    messages = [{"role": "user", "content": "What is 2 + 2?"}]
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    request = GenerationRequest(
        model=model,
        prompt=tuple(tokenizer.encode(text, add_special_tokens=False)),
        messages=messages,
        n=2,
        max_tokens=1,
        temperature=1.0,
        top_p=1.0,
        vocabulary=len(tokenizer),
        candidates=1,
    )
    return Requirements(
        request=request,
        text_ids=tuple(tokenizer.encode(PROBE_TEXT, add_special_tokens=False)),
        length_limit=512,
        sampling=SamplingParams(temperature=0.7, top_p=1.0, split="train"),
    )


async def record(url: str, model: str) -> dict[str, Any]:
    exchanges: list[dict[str, Any]] = []
    required = requirements_of(AutoTokenizer.from_pretrained(model), model)
    group = replace(required.request, n=3, max_tokens=40, temperature=0.7, candidates=0)
    for kind in ("vllm", "openai"):
        settings = APIServerConfig(
            server_type=kind, base_url=f"{url}/v1", model_name=model, api_key="x"
        )
        server = Recorded(settings, exchanges)
        found = await probe(server, required)
        assert found.dialect
        await server.probe(found.dialect, group)
        with suppress(aiohttp.ClientResponseError):  # too many tokens
            await server.probe(found.dialect, replace(group, max_tokens=5000))
        settings.model_name = "unknown"
        with suppress(ConfigurationError):
            await probe(server, required)
        await server.close()
    return {
        "ask": asdict(required.request),
        "text_ids": required.text_ids,
        "exchanges": exchanges,
    }


if __name__ == "__main__":
    at, folder, out = sys.argv[1:]
    recording = asyncio.run(record(at, folder))
    lines = ",\n".join(json.dumps(exchange) for exchange in recording.pop("exchanges"))
    text = f'{json.dumps(recording)[:-1]}, "exchanges": [\n{lines}\n]}}\n'
    Path(out).write_text(text.replace(folder, "SmolLM2-135M-Instruct"))
