"""Training problems: seeds, sampler, levels, curriculum, the stream, and suites.

The generators of `sandbox` make the problems, and `evaluation` plans evaluation items.
"""
