"""Suites: evaluation sets as files, with the hash of every question and all that results depend on.

A suite never changes: another set has another version. The package has the newest version of each,
and the repository the earlier ones. `research/make_suites.py` made them. A suite's items are
generated from their recipes and must have the questions of the file, which has the first digits of
each question's hash, and one hash over all recipes and questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from ..errors import ConfigurationError, FixableError, did_you_mean
from ..records import Problem, Recipe, recipe_key
from ..tasks.facts import LIBRARY
from ..tasks.recipes import require_valid_recipe
from ..util.files import read_regular
from ..util.values import convert

FOLDER = Path(__file__).with_name("suite_files")

NAMES = ("small", "medium", "paper-easy", "paper-hard", "full")
"""Suites of the package; those of the fewest items a task come first."""

EARLIER = "research/leaderboard/suites"
"""Folder of the repository with the suites' earlier versions, as NAME@VERSION.json."""

DRAWN_BY_SEEDS = {"small": 2, "medium": 2, "full": 2}
"""The last versions whose items were drawn by seeds, before questions decided their split."""

_Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Digits = Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
_Seed = Annotated[int, Meta(ge=0, lt=2**53)]
_Difficulty = Annotated[float, Meta(ge=0, le=1)]


class SuiteSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What results depend on, under the options' names; the user may choose other tokens."""

    system_prompt: str
    eval_attempts: Annotated[int, Meta(ge=1, le=10_000)]
    eval_temperature: Annotated[float, Meta(ge=0, le=100)]
    max_token_length: Annotated[int, Meta(ge=1, le=2**31)]


class SuiteItems(Struct, frozen=True, forbid_unknown_fields=True):
    """Items with the same parameters: seeds, and the first digits of each question's SHA-256."""

    task: Annotated[str, Meta(pattern="^[a-z0-9_]{1,100}$")]
    level: Annotated[int, Meta(ge=0, lt=1000)] | None
    difficulty: _Difficulty | None
    parameters: dict[str, Any]
    items: Annotated[list[tuple[_Seed, _Digits]], Meta(min_length=1)]


class LeftOut(Struct, frozen=True, forbid_unknown_fields=True):
    """An item that would belong to the suite but for its fault, or that repeats a question."""

    task: str
    parameters: dict[str, Any]
    seed: _Seed
    fault: str
    detail: str


class Suite(Struct, frozen=True, forbid_unknown_fields=True):
    """A fixed evaluation set.

    Attributes:
        made_with: versions of the packages that made it.
        left_out: faulty and repeated items of a set that somebody else has published.
        sha256: of all else with the whole hash of each question; results carry it.
        file_sha256: of the rest of the file.
    """

    name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,39}$")]
    version: Annotated[int, Meta(ge=1, le=2**31)]
    about: str
    made_with: dict[str, str]
    settings: SuiteSettings
    sets: Annotated[list[SuiteItems], Meta(min_length=1)]
    left_out: list[LeftOut]
    sha256: _Hash
    file_sha256: _Hash

    def __len__(self) -> int:
        """The number of items."""
        return sum(len(of.items) for of in self.sets)

    @property
    def tasks(self) -> list[str]:
        return sorted({of.task for of in self.sets})

    @property
    def fixed_settings(self) -> dict[str, Any]:
        """The options that an evaluation on the suite can't change."""
        return {
            n: v
            for n, v in to_builtins(self.settings).items()
            if n != "max_token_length"
        }

    @property
    def identity(self) -> dict[str, Any]:
        """What results carry of the suite."""
        return {"name": self.name, "version": self.version, "sha256": self.sha256}

    @property
    def was_drawn_by_seeds(self) -> bool:
        """Whether training may ask any of its questions, as seeds decided their split."""
        return self.version <= DRAWN_BY_SEEDS.get(self.name, 0)

    def items(self) -> Iterator[tuple[Recipe, float | None, str]]:
        """Yield every item's recipe, its difficulty and eight digits of its question's SHA-256."""
        for of in self.sets:
            for seed, digits in of.items:
                recipe = Recipe(
                    task=of.task,
                    seed=seed,
                    level=of.level,
                    parameters=of.parameters,
                )
                yield recipe, of.difficulty, digits

    def recipes(self) -> list[tuple[Recipe, float | None]]:
        """Return every item's recipe and difficulty; None is the default configuration."""
        return [(recipe, difficulty) for recipe, difficulty, _ in self.items()]


def require_tags(answer_format: Any) -> None:
    """Raise ConfigurationError for another answer format than the one that suites have."""
    if answer_format != "tags":
        raise ConfigurationError(
            f"answer_format must be tags on a suite, whose prompt asks for them, got "
            f"{answer_format!r}: leave it out, or evaluate without a suite"
        )


def question_sha256(question: str) -> str:
    """Return the SHA-256 of a question's UTF-8 text, as hexadecimal digits."""
    return hashlib.sha256(question.encode()).hexdigest()


def suite_sha256(manifest: Mapping[str, Any], *without: str) -> str:
    """Return the SHA-256 of a suite without some of its keys, as sorted JSON."""
    hashed = {key: value for key, value in manifest.items() if key not in without}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def with_questions(
    manifest: Mapping[str, Any], digests: Iterable[str]
) -> dict[str, Any]:
    """Return a suite with other hashes of its questions, in the order of its items."""
    remaining = iter(digests)
    sets = [
        {**of, "items": [[seed, next(remaining)] for seed, _ in of["items"]]}
        for of in manifest["sets"]
    ]
    return {**manifest, "sets": sets}


def load_suite(name: str) -> Suite:
    """Read a suite of the package by its name, or any by its file, unchanged and valid."""
    path = Path(name)
    if name in NAMES:
        path = FOLDER / f"{name}.json"
    elif not path.is_file():
        suite_name, _, version = name.partition("@")
        file = earlier_file(suite_name, version)
        if file is not None:
            raise ConfigurationError(
                f"{name} is an earlier version, which the package doesn't have: give its file, "
                f"{file} in the repository"
            )
        hint = did_you_mean(name, NAMES, otherwise=f"there are {', '.join(NAMES)}")
        raise ConfigurationError(f"no suite and no file is named {name!r}; {hint}")
    try:
        manifest = json.loads(read_regular(path))
        suite = convert(manifest, Suite)
        suite.settings.system_prompt.encode()
        for recipe, _, _ in suite.items():
            require_valid_recipe(recipe)
        if len({recipe_key(recipe) for recipe, _, _ in suite.items()}) < len(suite):
            raise ValueError("an item is there twice")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not a suite: {error}") from None
    if suite_sha256(manifest, "file_sha256") != suite.file_sha256:
        raise ConfigurationError(
            f"{path} was changed: its file_sha256 is another one; get the original"
        )
    return suite


def earlier_file(name: Any, version: Any) -> str | None:
    """Return the file of a suite's earlier version in the repository; None for any other suite.

    Example:
        >>> earlier_file("small", 1), earlier_file("small", 3), earlier_file("own", 1)
        ('research/leaderboard/suites/small@1.json', None, None)
    """
    if name not in NAMES:
        return None
    earlier_versions = range(1, load_suite(name).version)
    if str(version) not in map(str, earlier_versions):
        return None
    return f"{EARLIER}/{name}@{version}.json"


def require_same_questions(suite: Suite, problems: Iterable[Problem]) -> None:
    """Raise FixableError where a suite's item is missing or has another question."""
    question_hashes = {
        recipe_key(p.recipe): question_sha256(p.question) for p in problems
    }
    items = [
        (recipe, question_hashes.get(recipe_key(recipe), ""), digits)
        for recipe, _, digits in suite.items()
    ]
    missing = [recipe for recipe, question, _ in items if not question]
    changed = [
        recipe
        for recipe, question, digits in items
        if question and question[:8] != digits
    ]
    if missing or changed:
        fault = (
            f"{len(changed)} of the {len(suite)} items of {suite.name} have another question and "
            f"{len(missing)} can't be generated, such as {recipe_key((changed or missing)[0])}"
        )
    else:
        whole = with_questions(
            to_builtins(suite), (question for _, question, _ in items)
        )
        if suite_sha256(whole, "sha256", "file_sha256") == suite.sha256:
            return
        fault = f"the recipes and questions of {suite.name} have another SHA-256 than the suite's"
    made_with = suite.made_with.get(LIBRARY, "of an unknown version")
    raise FixableError(
        f"{fault}: the suite was made with {LIBRARY} {made_with} and Python ≥ 3.11, "
        f"this is {version(LIBRARY)} on Python {python_version()}; use those for comparable results"
    )
