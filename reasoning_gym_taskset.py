"""Names our taskset where verifiers looks for it: `vf-eval reasoning-gym-taskset`.

The harness beside it is the taskset's default: it asks once and has no tools.
"""

from verifiers.v1.harnesses.null import NullHarness

from reasoning_gym_environment.integrations.verifiers import ReasoningGymTaskset

__all__ = ["NullHarness", "ReasoningGymTaskset"]
