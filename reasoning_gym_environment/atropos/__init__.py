"""What speaks atroposlib or wandb: settings, rows, delivery, output.

The rest of the package works without Atropos, except the environment and the demo.
"""
