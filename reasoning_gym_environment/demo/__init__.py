"""The demo: a simulated policy behind real HTTP, between the environment and a trainer client.

The environment never imports this package.
"""

__all__ = ["policy", "report", "server", "session", "tokenizer", "trainer"]
