"""How each kind of inference server is asked for token ids and logprobs, and how it answers.

A dialect is pure: from what is asked to a request's JSON, and from a reply's JSON to samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .requests import Ask, ReplyError, Sampled, require_prompt

_UNTOUCHED = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Said aloud, since servers take what isn't said from the model's `generation_config.json`."""


class VllmCompletions:
    """Stock `vllm serve`, from 0.10.2 on."""

    name = "vLLM's /v1/completions"
    path = "/v1/completions"
    processed_by = "start it with `vllm serve --logprobs-mode processed_logprobs`"

    def body(self, ask: Ask) -> dict[str, Any]:
        return {
            **_openai_body(ask),
            "prompt": list(ask.prompt),
            "logprobs": ask.candidates,
        }

    def gives_tokens(self, reply: Any) -> bool:
        return _has(reply["choices"][0], "token_ids", "logprobs")

    def samples(self, reply: Any, ask: Ask) -> list[Sampled]:
        for choice in reply["choices"]:
            require_prompt(choice["prompt_token_ids"], ask)
        return [
            Sampled(c["token_ids"], c["logprobs"]["token_logprobs"], c["finish_reason"])
            for c in reply["choices"]
        ]

    def best(self, reply: Any) -> float:
        return float(max(reply["choices"][0]["logprobs"]["top_logprobs"][0].values()))


class VllmGenerate:
    """The `/generate` of atroposlib's `example_trainer/vllm_api_server.py`."""

    name = "atroposlib's /generate"
    path = "/generate"
    processed_by = "start it with `--logprobs-mode processed_logprobs`"

    def body(self, ask: Ask) -> dict[str, Any]:
        return {
            "prompt": {"prompt_token_ids": list(ask.prompt)},
            **_sampling(ask),
            "logprobs": ask.candidates,
        }

    def gives_tokens(self, reply: Any) -> bool:
        return _has(reply, "logprobs", "finish_reasons")

    def samples(self, reply: Any, ask: Ask) -> list[Sampled]:
        firsts = [[next(iter(p[0].items())) for p in row] for row in reply["logprobs"]]
        return [
            Sampled([int(token) for token, _ in row], [logprob for _, logprob in row], reason)
            for row, reason in zip(firsts, reply["finish_reasons"], strict=True)
        ]

    def best(self, reply: Any) -> float:
        return float(max(value for entry in reply["logprobs"][0][0] for value in entry.values()))


class SglangGenerate:
    """SGLang's native `/generate`."""

    name = "SGLang's /generate"
    path = "/generate"
    processed_by = "start it without SGLANG_RETURN_ORIGINAL_LOGPROB"

    def body(self, ask: Ask) -> dict[str, Any]:
        sampling = {"n": ask.n, "temperature": ask.temperature, "top_p": ask.top_p}
        return {
            "input_ids": list(ask.prompt),
            "sampling_params": {**sampling, "max_new_tokens": ask.max_tokens, **_UNTOUCHED},
            "return_logprob": True,
            "return_text_in_logprobs": False,
            "top_logprobs_num": ask.candidates,
        }

    def gives_tokens(self, reply: Any) -> bool:
        return _has(_several(reply)[0]["meta_info"], "output_token_logprobs")

    def samples(self, reply: Any, ask: Ask) -> list[Sampled]:
        return [
            Sampled(
                [entry[1] for entry in meta["output_token_logprobs"]],
                [entry[0] for entry in meta["output_token_logprobs"]],
                meta["finish_reason"]["type"],
            )
            for meta in (result["meta_info"] for result in _several(reply))
        ]

    def best(self, reply: Any) -> float:
        first = _several(reply)[0]["meta_info"]["output_top_logprobs"][0]
        return float(max(entry[0] for entry in first))


class TrlGenerate:
    """The `/generate/` of `trl vllm-serve` in TRL 1.0 to 1.10; from 1.11 on it runs stock vLLM."""

    name = "TRL's /generate/"
    path = "/generate/"
    processed_by = "take TRL 1.0 or newer"

    def body(self, ask: Ask) -> dict[str, Any]:
        return {
            "prompts": [list(ask.prompt)],
            **_sampling(ask),
            "logprobs": ask.candidates,
        }

    def gives_tokens(self, reply: Any) -> bool:
        return _has(reply, "completion_ids", "logprobs")

    def samples(self, reply: Any, ask: Ask) -> list[Sampled]:
        """A completion that doesn't end with a special token was cut off."""
        require_prompt(reply["prompt_ids"][0], ask)
        return [
            Sampled(
                tokens,
                [candidates[0] for candidates in logprobs],
                "stop" if ask.stops.intersection(tokens[-1:]) else "length",
            )
            for tokens, logprobs in zip(reply["completion_ids"], reply["logprobs"], strict=True)
        ]

    def best(self, reply: Any) -> float:
        return float(max(reply["logprobs"][0][0]))


class ChatTokens:
    """Chat completions with token ids, which vLLM and SGLang give on request."""

    name = "/v1/chat/completions with token ids"
    path = "/v1/chat/completions"
    processed_by = "start it with `vllm serve --logprobs-mode processed_logprobs`"

    def body(self, ask: Ask) -> dict[str, Any]:
        return {
            **_openai_body(ask),
            "messages": list(ask.messages),
            "logprobs": True,
            # vLLM counts the sampled token among them, and puts it first
            "top_logprobs": ask.candidates + 1 if ask.candidates else 0,
        }

    def gives_tokens(self, reply: Any) -> bool:
        choice = reply["choices"][0]
        return _has(choice, "logprobs") and _chat_ids(choice) is not None

    def samples(self, reply: Any, ask: Ask) -> list[Sampled]:
        for choice in reply["choices"]:  # SGLang repeats the prompt in each
            require_prompt(choice.get("prompt_token_ids", reply.get("prompt_token_ids")), ask)
        return [
            Sampled(
                _chat_ids(choice),
                [entry["logprob"] for entry in choice["logprobs"]["content"]],
                choice["finish_reason"],
            )
            for choice in reply["choices"]
        ]

    def best(self, reply: Any) -> float:
        first = reply["choices"][0]["logprobs"]["content"][0]
        return float(max(entry["logprob"] for entry in first["top_logprobs"]))


class ChatText:
    """Chat completions as any endpoint gives them: text alone."""

    name = "/v1/chat/completions"
    path = "/v1/chat/completions"
    processed_by = ""

    def body(self, ask: Ask) -> dict[str, Any]:
        return {"model": ask.model, "messages": list(ask.messages), **_sampling(ask)}

    def gives_tokens(self, reply: Any) -> bool:
        return False

    def samples(self, reply: Any, ask: Ask) -> list[Sampled]:
        raise ReplyError("there are no token ids in a chat completion's text")

    def best(self, reply: Any) -> float:
        raise ReplyError("there are no logprobs in a chat completion's text")


def _sampling(ask: Ask) -> dict[str, Any]:
    """What is asked of every server that names these as OpenAI does."""
    return {
        "n": ask.n,
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
    }


def _openai_body(ask: Ask) -> dict[str, Any]:
    return {"model": ask.model, **_sampling(ask), "return_token_ids": True, **_UNTOUCHED}


def _has(part: Mapping[str, Any], *names: str) -> bool:
    return all(part.get(name) is not None for name in names)


def _chat_ids(choice: Any) -> Any:
    """A choice's token ids, by the name that vLLM or SGLang gives them."""
    return choice.get("token_ids", choice.get("response_token_ids"))


def _several(reply: Any) -> list[Any]:
    """SGLang answers with an object where one completion was asked for, else with a list."""
    return reply if isinstance(reply, list) else [reply]
