"""From a completion's text to its reward: extraction, tolerance, guards, the length penalty.

The library's verifiers themselves run in `workers`, which alone execute them.
"""
