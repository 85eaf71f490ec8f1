"""Adapters for other frameworks, one per module.

Each needs its framework. None needs Atropos.
"""
