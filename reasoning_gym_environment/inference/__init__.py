"""Client library for inference servers: prompts, requests and replies, failover, negotiation.

It knows nothing of Atropos but the server settings that it is given. A group's scores are made in
`rollouts`.
"""
