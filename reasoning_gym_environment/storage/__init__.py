"""Groups of rollouts on disk: dumps, checkpoints, rescoring, export, and text for the terminal.

Evaluation results have the same rows; their folders belong to `evaluation`.
"""

__all__ = ["checkpoints", "dumps", "export", "rendering", "rescoring", "rows", "runs"]
