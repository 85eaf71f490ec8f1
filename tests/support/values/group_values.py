"""Values the tests of the runtime build on."""

from reasoning_gym_environment.records import (
    Attempt,
    Completion,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Status,
    Verdict,
)


def completion(
    text: str = "", *, prompt: int = 3, length: int = 4, finish_reason: str = "stop"
) -> Completion:
    """`prompt` masked tokens, then `length` of the model's."""
    own = tuple(range(100, 100 + length))
    return Completion(
        text=text,
        tokens=(*range(prompt), *own),
        masks=(*(-100 for _ in range(prompt)), *own),
        logprobs=None,
        finish_reason=finish_reason,
    )


def group(
    *scores: float | None,
    task: str = "gcd",
    errors: int = 0,
    texts: tuple[str, ...] = (),
) -> GroupResult:
    """One attempt for each score; None is an unscored one."""

    def attempt(score: float | None, text: str) -> Attempt:
        status = Status.UNSCORED if score is None else Status.WRONG
        if score is not None and score >= 0.5:
            status = Status.SOLVED
        return Attempt(
            completion=completion(text),
            answer=text,
            verdict=Verdict(score=score, status=status, errors=errors),
            reward=Reward(value=score or 0.0),
        )

    problem = Problem(
        recipe=Recipe(task=task, seed=2), question="?", oracle="1", entry=b""
    )
    said = texts or tuple(f"<answer>{i}</answer>" for i in range(len(scores)))
    return GroupResult(
        problem=problem,
        attempts=tuple(attempt(s, t) for s, t in zip(scores, said, strict=True)),
    )
