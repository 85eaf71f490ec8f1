"""The reward service: problems and scores over HTTP, for trainers in any language.

An ASGI application over the gym, which makes the problems and scores the completions.
"""

__all__ = ["app", "client", "server"]
