"""One self-contained HTML page from dumps and evaluation results.

Figures are calculated here from stored groups; nothing is scored or sampled.
"""
