"""The demo: a simulated policy behind real HTTP, between the environment and a stand-in trainer.

The environment never imports this package.
"""

from .. import atropos  # noqa: F401 - keeps transformers from saying that PyTorch is missing
