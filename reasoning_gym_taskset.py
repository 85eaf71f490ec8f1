"""Names our taskset where verifiers looks for it: `vf-eval reasoning-gym-taskset`."""

from reasoning_gym_environment.integrations.verifiers import ReasoningGymTaskset

__all__ = ["ReasoningGymTaskset"]
