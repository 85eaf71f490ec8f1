"""Names our taskset where verifiers looks for it: `vf-eval reasoning-gym-taskset`.

It stands outside of the package since verifiers 0.4 makes the module's name from the id: for an id
with dots it first looks for a submodule of its own, whose parents it can't import.

The harness beside it is the taskset's default: it asks once and has no tools.
"""

from verifiers.v1.harnesses.null import NullHarness

from reasoning_gym_environment.integrations.verifiers import ReasoningGymTaskset

__all__ = ["NullHarness", "ReasoningGymTaskset"]
