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
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import aiohttp
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from transformers import AutoTokenizer

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.client import KNOWN_TEXT
from reasoning_gym_environment.inference.negotiation import Needs, examine
from reasoning_gym_environment.inference.requests import Ask, SamplingParams
from reasoning_gym_environment.inference.servers import ChatServer, TokenClient, VllmServer


def recorded(client: type[TokenClient], exchanges: list[dict[str, Any]]) -> type[TokenClient]:
    """The client, which also notes each request with its status and reply."""

    class Recorded(client):
        async def request(self, method: str, path: str, body: Any = None) -> Any:
            asked = {"method": method, "path": path, "body": body}
            try:
                reply = await super().request(method, path, body)
            except aiohttp.ClientResponseError as error:
                refused = {"error": {"message": error.message}}
                exchanges.append({**asked, "status": error.status, "reply": refused})
                raise
            exchanges.append({**asked, "status": 200, "reply": reply})
            return reply

    return Recorded


def needs_of(tokenizer: Any, model: str) -> Needs:
    """What a small run needs of the server."""
    messages = [{"role": "user", "content": "What is 2 + 2?"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ask = Ask(
        model=model,
        prompt=tuple(tokenizer.encode(text, add_special_tokens=False)),
        messages=messages,
        n=2,
        max_tokens=1,
        temperature=1.0,
        top_p=1.0,
        vocabulary=len(tokenizer),
        stops=frozenset(tokenizer.all_special_ids),
        candidates=1,
    )
    return Needs(
        ask=ask,
        text=KNOWN_TEXT,
        text_ids=tuple(tokenizer.encode(KNOWN_TEXT, add_special_tokens=False)),
        max_length=512,
        sampling=SamplingParams(temperature=0.7, top_p=1.0, split="train"),
    )


async def record(url: str, model: str) -> dict[str, Any]:
    exchanges: list[dict[str, Any]] = []
    needs = needs_of(AutoTokenizer.from_pretrained(model), model)
    group = replace(needs.ask, n=3, max_tokens=40, temperature=0.7, candidates=0)
    for client in (VllmServer, ChatServer):
        settings = APIServerConfig(base_url=f"{url}/v1", model_name=model, api_key="x")
        server = recorded(client, exchanges)(settings)
        found = await examine(server, needs)
        assert found.dialect
        await server.ask(found.dialect, group)
        with suppress(aiohttp.ClientResponseError):  # too many tokens
            await server.ask(found.dialect, replace(group, max_tokens=5000))
        settings.model_name = "unknown"
        with suppress(ConfigurationError):
            await examine(server, needs)
    ask = {**asdict(needs.ask), "stops": sorted(needs.ask.stops)}
    return {"ask": ask, "text_ids": needs.text_ids, "exchanges": exchanges}


if __name__ == "__main__":
    at, folder, out = sys.argv[1:]
    recording = asyncio.run(record(at, folder))
    lines = ",\n".join(json.dumps(exchange) for exchange in recording.pop("exchanges"))
    text = f'{json.dumps(recording)[:-1]}, "exchanges": [\n{lines}\n]}}\n'
    Path(out).write_text(text.replace(folder, "SmolLM2-135M-Instruct"))
