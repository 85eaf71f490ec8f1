"""Groups of rollouts on disk: written as dumps, read again, rescored, shown and exported.

Results of evaluations are the same rows, but their folders belong to `evaluation`.
"""
