"""TRL's `vllm-serve` with tokens and logprobs, which atroposlib's own client leaves out."""

from __future__ import annotations

from typing import Any

import aiohttp
from atroposlib.envs.server_handling.trl_vllm_server import TrlVllmServer

from .failures import require_ok

_SAMPLING = ("n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")


class TrlServer(TrlVllmServer):
    """Adds token-level completions to atroposlib's client."""

    async def _tokens_and_logprobs_completion_wrapper(
        self, **kwargs: Any
    ) -> tuple[list[int], list[list[int]], list[list[float]], list[str]]:
        """Prompt tokens, and per completion its tokens, logprobs and finish reason.

        Raises:
            aiohttp.ClientError: the request failed.
            KeyError: the server is too old to return prompt ids and logprobs.
        """
        body = {"prompts": [self._without_bos(kwargs["prompt"])]}
        body |= {name: kwargs[name] for name in _SAMPLING if name in kwargs}
        timeout = aiohttp.ClientTimeout(total=self.config.timeout)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{self.config.base_url}/generate/", json=body) as response,
        ):
            await require_ok(response)
            reply = await response.json()
        completions = reply["completion_ids"]
        logprobs = [[_sampled(token) for token in row] for row in reply["logprobs"]]
        ended = [
            "stop" if self.tokenizer.eos_token_id in tokens else "length" for tokens in completions
        ]
        return reply["prompt_ids"][0], completions, logprobs, ended

    def _without_bos(self, prompt: str) -> str:
        """The server's tokenizer adds the first token again."""
        bos = self.tokenizer.bos_token
        adds_bos = bool(bos) and self.tokenizer.encode("")[:1] == [self.tokenizer.bos_token_id]
        return prompt.removeprefix(bos) if adds_bos else prompt


def _sampled(token: float | list[float]) -> float:
    """The sampled token's logprob; newer servers send a list of the top ones."""
    return token[0] if isinstance(token, list) else token
