"""Everything that imports atroposlib or wandb: the base class, delivery, replicas, scored data.

The rest of the package works without Atropos, except the environment and the demo.
"""

__all__ = ["base", "config", "launch", "scored_data", "shared_curriculum"]
