"""Adapters for other frameworks, one a module. Each needs its framework and none needs Atropos."""
