"""Discovery, selection and weights of tasks, and the bundled snapshot."""

import pytest

from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks import catalogue
from reasoning_gym_environment.tasks.catalogue import (
    Discovery,
    LibrarySnapshot,
    TaskInfo,
    UnknownTaskError,
    bundled_snapshot,
    count_used,
    describe_left_out,
    discover,
    proven_tasks,
    select_tasks,
    task_weights,
)
from reasoning_gym_environment.tasks.facts import (
    ONLY_IF_NAMED,
    known_categories,
    ladder_heights,
)

OFFER = Discovery(
    categories={
        "composite": "composite",
        "game_of_life_halting": "algorithmic",
        "gcd": "arithmetic",
        "jugs": "algorithmic",
        "lcm": "arithmetic",
        "propositional_logic": "logic",
        "sudoku": "games",
    },
    failures={"jugs": "can't be built: RuntimeError: no water"},
    warning=None,
)


def used(include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> list[str]:
    return [
        t.name for t in select_tasks(OFFER, include=include, exclude=exclude) if t.used
    ]


def reasons(
    include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> dict[str, str]:
    return {
        t.name: t.reason for t in select_tasks(OFFER, include=include, exclude=exclude)
    }


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), ["gcd", "lcm", "sudoku"]),
        (("lcm", "games"), (), ["lcm", "sudoku"]),
        ((), ("games", "gcd"), ["lcm"]),
        (("arithmetic",), ("gcd",), ["lcm"]),
        (("gcd", "sudoku"), ("arithmetic",), ["sudoku"]),
        (("jugs", "gcd"), (), ["gcd"]),  # fails to build
        (("composite", "gcd"), (), ["gcd"]),
        (("game_of_life_halting",), (), ["game_of_life_halting"]),  # pays any answer
    ],
)
def test_tasks_and_categories_are_included_and_excluded(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: list[str]
) -> None:
    assert used(include, exclude) == expected


def test_all_names_are_listed_in_order_and_those_left_out_with_their_reason() -> None:
    assert [task.name for task in select_tasks(OFFER)] == sorted(OFFER.categories)
    assert reasons(include=("lcm",))["gcd"] == "not among include_tasks"
    assert reasons(exclude=("games",))["sudoku"] == "excluded by exclude_tasks"
    assert reasons()["jugs"] == "can't be built: RuntimeError: no water"
    assert "no problems of its own" in reasons()["composite"]


@pytest.mark.parametrize("task", ONLY_IF_NAMED)
@pytest.mark.parametrize(
    "include", [(), ("algorithmic", "logic"), ("algorithmic", "logic", "gcd")]
)
def test_a_task_that_pays_without_reasoning_is_left_out_unless_it_is_named(
    task: str, include: tuple[str, ...]
) -> None:
    assert task not in used(include=include)
    reason = reasons(include=include)[task]
    assert reason.startswith(ONLY_IF_NAMED[task])
    assert "include it by name" in reason
    assert task in used(include=(task,))


@pytest.mark.parametrize(
    ("setting", "name", "said"),
    [
        ("include", "sudoko", "include_tasks: .*'sudoko'.*did you mean sudoku"),
        ("exclude", "sudoko", "exclude_tasks: .*'sudoko'.*did you mean sudoku"),
        ("include", "qqqqqq", "unknown task or category 'qqqqqq'; see the `tasks`"),
    ],
)
def test_an_unknown_name_raises_with_close_matches(
    setting: str, name: str, said: str
) -> None:
    with pytest.raises(UnknownTaskError, match=said):
        select_tasks(OFFER, **{setting: [name]})


def test_an_unknown_task_is_a_configuration_error() -> None:
    assert issubclass(UnknownTaskError, ConfigurationError)
    assert issubclass(UnknownTaskError, FixableError)


def test_a_weight_comes_from_the_task_then_its_category_then_one() -> None:
    weights = task_weights(select_tasks(OFFER), {"arithmetic": 3.0, "lcm": 0.5})
    assert weights == {"gcd": 3.0, "lcm": 0.5, "sudoku": 1.0}
    assert task_weights(select_tasks(OFFER), {"arithmetic": 0.0})["gcd"] == 0.0


def test_a_weight_for_an_unknown_name_raises_with_close_matches() -> None:
    with pytest.raises(
        UnknownTaskError, match=r"task_weights: .*'arithmetics'.*arithmetic"
    ):
        task_weights(select_tasks(OFFER), {"arithmetics": 2.0})


@pytest.mark.parametrize(
    ("include", "weights", "end"),
    [
        (("jugs",), {}, r" \(can't be built: RuntimeError: no water\)$"),
        ((), {"gcd": 0.0, "lcm": 0.0, "games": 0.0}, "$"),
    ],
)
def test_a_selection_without_positive_weights_is_an_error_with_its_reason(
    include: tuple[str, ...], weights: dict[str, float], end: str
) -> None:
    said = f"no task has a weight above 0: .* and task_weights{end}"
    with pytest.raises(ConfigurationError, match=said):
        task_weights(select_tasks(OFFER, include=include), weights)


def test_task_info_is_plain_json_with_its_use() -> None:
    info = TaskInfo(name="gcd", category="arithmetic", reason="why not")
    row = {"name": "gcd", "category": "arithmetic", "reason": "why not", "used": False}
    assert info.to_json() == row


@pytest.mark.parametrize(
    "error",
    [
        ImportError("no module"),
        AttributeError("no DATASETS"),
        TypeError("not a mapping"),
        ValueError("too many values to unpack"),
        IndexError("a class outside the package has no category"),
        KeyError("renamed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_snapshot_replaces_an_unreadable_registry(error: Exception) -> None:
    def broken() -> dict[str, str]:
        raise error  # the registry has moved or changed its shape

    tried: list[str] = []
    found = discover(tried.append, broken, proven={"gcd"})
    assert found.categories == known_categories()
    assert tried == sorted(known_categories())
    assert found.warning is not None
    assert str(error) in found.warning
    assert "of 105 known tasks, the 105 that load" in found.warning


def test_a_task_that_raises_when_built_is_a_failure_with_its_message() -> None:
    def build(name: str) -> object:
        if name == "lcm":
            raise ZeroDivisionError("no multiple")
        return name

    found = discover(build, lambda: {"gcd": "arithmetic", "lcm": "arithmetic"})
    assert found.failures == {"lcm": "can't be built: ZeroDivisionError: no multiple"}
    [gcd, lcm] = select_tasks(found)
    assert (gcd.used, lcm.used) == (True, False)
    assert "no multiple" in lcm.reason


def test_proven_tasks_and_composite_are_not_built() -> None:
    tried: list[str] = []
    registry = {
        "composite": "composite",
        "gcd": "arithmetic",
        "lcm": "arithmetic",
        "new": "games",
    }
    found = discover(tried.append, lambda: registry, proven={"gcd", "lcm", "gone"})
    assert tried == ["new"]
    assert found == Discovery(registry, {}, None)


@pytest.mark.asyncio(loop_scope="session")
async def test_all_tasks_can_be_built_and_the_snapshot_is_what_the_library_offers(
    pool: TaskPool,
) -> None:
    found = await pool.discover()
    assert (found.failures, found.warning) == ({}, None)
    assert len([task for task in select_tasks(found) if task.used]) == 103
    snapshot = bundled_snapshot()
    assert snapshot is not None, "of another version of reasoning-gym: make docs"
    assert snapshot == LibrarySnapshot(found, await pool.ladders())


def test_the_snapshot_has_all_tasks_as_proven_and_the_height_of_each() -> None:
    snapshot = bundled_snapshot()
    assert snapshot is not None
    assert snapshot.discovery.failures == {}
    assert proven_tasks() == snapshot.discovery.categories.keys()
    heights = {task: len(ladder.levels) for task, ladder in snapshot.ladders.items()}
    assert ladder_heights() == heights


def test_there_is_no_snapshot_for_another_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogue, "version", lambda _: "0.0.1")
    assert bundled_snapshot() is None
    assert proven_tasks() == frozenset()


def test_those_left_out_are_counted_and_named_with_their_reasons() -> None:
    snapshot = bundled_snapshot()
    assert snapshot is not None
    tasks = select_tasks(snapshot.discovery)
    assert count_used(tasks) == "103 of 105 tasks are used"
    named = describe_left_out(tasks)
    assert "; left out: game_of_life_halting, its verifier gives" in named
    assert "; left out: propositional_logic, `P ∧ Q` solves" in named
    assert "composite" not in named
    few = select_tasks(snapshot.discovery, include=["gcd"])
    assert count_used(few) == "1 of 105 tasks are used"
    assert describe_left_out(few) == "; left out: 104 tasks, not among include_tasks"
