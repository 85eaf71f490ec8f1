"""Client library for inference servers: prompts, requests and replies, failover, negotiation.

It does not import Atropos. `rollouts` scores the completions.
"""
