"""Training problems: seeds, sampler, levels, curriculum, and the stream.

The generators of `sandbox` make the problems, and `evaluation` plans evaluation items.
"""

__all__ = ["curriculum", "levels", "sampler", "seeds", "stream", "training"]
