"""What speaks atroposlib or wandb: settings, servers, rows, delivery, output.

The rest of the package works without Atropos, except the environment and the demo.
"""

__all__ = ["config", "delivery", "launch", "output", "servers", "shared_curriculum"]
