"""What a server is asked for in tests of how its reply is read."""

from reasoning_gym_environment.inference.requests import Ask

ASK = Ask(
    model="m",
    prompt=(5, 6, 7),
    messages=[{"role": "user", "content": "?"}],
    n=2,
    max_tokens=4,
    temperature=0.7,
    top_p=1.0,
    vocabulary=10,
    stops=frozenset({0}),
)
