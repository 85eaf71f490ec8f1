"""All that speaks atroposlib or wandb: remedies for the base class, inference clients, scored data.

Everything left of this package works without Atropos installed.
"""
