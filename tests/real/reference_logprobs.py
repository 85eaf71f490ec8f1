"""The logprobs that transformers gives the same tokens: reads and writes JSON.

    python tests/real/reference_logprobs.py MODEL TEMPERATURE < rows.json > logprobs.json

A row is `[prompt_length, tokens]`; its logprobs are those of the tokens after the prompt, with
logits divided by the temperature, as a trainer takes them. In float32, of bfloat16 weights.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

folder, temperature = sys.argv[1], float(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
answers = []
with torch.inference_mode():
    for prompt_length, tokens in json.load(sys.stdin):
        logits = model(torch.tensor([tokens])).logits[0, prompt_length - 1 : -1]
        logprobs = torch.log_softmax(logits / temperature, dim=-1)
        sampled = torch.tensor(tokens[prompt_length:])
        answers.append(logprobs.gather(1, sampled[:, None])[:, 0].tolist())
json.dump(answers, sys.stdout)
