"""From a completion's text to its reward: extraction, formatting tolerance, guards, shaping.

The library's verifiers run in `sandbox`.
"""
