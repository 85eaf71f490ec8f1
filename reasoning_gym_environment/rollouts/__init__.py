"""One group of rollouts: its prompt, tokens, completions, grades and counts.

How an inference server is spoken to is in `atropos`.
"""
