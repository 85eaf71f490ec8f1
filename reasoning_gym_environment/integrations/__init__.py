"""Adapters for other frameworks, one per module.

Each needs its framework. None needs Atropos.
"""

__all__ = [
    "inspect_ai",
    "nemo_gym",
    "openenv",
    "shared",
    "skyrl",
    "tinker",
    "trl",
    "verifiers",
    "verl",
]
