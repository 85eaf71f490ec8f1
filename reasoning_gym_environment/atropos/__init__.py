"""All that speaks atroposlib or wandb: remedies for the base class, delivery, scored data.

Everything left of this package works without Atropos installed.
"""
