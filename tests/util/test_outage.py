"""An outage is spoken of at once, then once a minute, then at its end."""

from reasoning_gym_environment.util.outage import Outage


class Clock:
    """A clock that a test sets."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_an_outage_is_spoken_of_at_once_and_then_once_a_minute() -> None:
    clock = Clock()
    outage, spoken = Outage(clock), []
    for seconds in range(200):
        clock.seconds = 100.0 + seconds
        if outage.failed():
            spoken.append(seconds)
    assert spoken == [0, 60, 120, 180]
    assert outage.lost == 200
    assert outage.over() == 199
    assert outage.over() is None


def test_the_next_outage_begins_anew() -> None:
    clock = Clock()
    outage = Outage(clock)
    assert outage.failed(lost=3)
    outage.over()
    clock.seconds += 1
    assert not outage
    assert outage.failed()
    assert (bool(outage), outage.lost) == (True, 1)
