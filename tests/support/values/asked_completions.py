"""A request for completions, for tests of how its reply is read."""

from reasoning_gym_environment.inference.dialects import GenerationRequest

REQUEST = GenerationRequest(
    model="m",
    prompt=(5, 6, 7),
    messages=[{"role": "user", "content": "?"}],
    n=2,
    max_tokens=4,
    temperature=0.7,
    top_p=1.0,
    vocabulary=10,
)
