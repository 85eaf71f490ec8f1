"""Adapters for other frameworks, one per module. Each needs its framework, none needs Atropos."""
