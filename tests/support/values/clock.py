"""A clock for code that takes one."""


class Clock:
    """Time that stands still until a test moves it; a look at it costs `look` seconds."""

    def __init__(self, now: float = 1000.0, *, look: float = 0.0) -> None:
        self.now = now
        self._look = look

    def __call__(self) -> float:
        self.now += self._look
        return self.now
