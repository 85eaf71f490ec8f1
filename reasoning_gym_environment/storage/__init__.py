"""Groups of rollouts on disk: dumps, checkpoints, rescoring and export.

Evaluation results have the same rows; their folders belong to `evaluation`.
"""
