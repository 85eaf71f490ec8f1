"""The logprobs that transformers gives the same tokens: reads and writes JSON.

    python tests/real/reference_logprobs.py MODEL TEMPERATURE... < rows.json > logprobs.json

A row is `[prompt_length, tokens]`; its logprobs are those of the tokens after the prompt, with
logits divided by the temperature, as a trainer takes them: one list of rows for each temperature.
In float32, of bfloat16 weights.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

folder, *temperatures = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
answers: list[list[list[float]]] = [[] for _ in temperatures]
with torch.inference_mode():
    for prompt_length, tokens in json.load(sys.stdin):
        logits = model(torch.tensor([tokens])).logits[0, prompt_length - 1 : -1]
        sampled = torch.tensor(tokens[prompt_length:])[:, None]
        for rows, temperature in zip(answers, temperatures, strict=True):
            logprobs = torch.log_softmax(logits / float(temperature), dim=-1)
            rows.append(logprobs.gather(1, sampled)[:, 0].tolist())
json.dump(answers, sys.stdout)
