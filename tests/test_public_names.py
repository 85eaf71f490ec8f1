"""What is public: the package's `__all__`, the integrations, and what the reference page shows."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import reasoning_gym_environment

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "reasoning_gym_environment"

NAMES = """
AsyncReasoningGym ConfigurationError Problem ProblemStream ReasoningGym ReasoningGymEnv
ReasoningGymEnvConfig Recipe Score Status compare contain evaluate evaluate_async read_results task
"""
MODULES = {
    "demo.policy": ["SimulatedPolicy"],
    "demo.server": ["PolicyServer", "build_tokenizer"],
    "demo.trainer": ["ApiServer"],
    "errors": [
        "FixableError",
        "GenerationError",
        "PoolClosedError",
        "WorkerStartError",
    ],
    "evaluation.comparison": [
        "Change",
        "ComparedEvaluation",
        "Comparison",
        "comparison_table",
    ],
    "evaluation.estimators": ["Estimate", "share"],
    "evaluation.metrics": ["EvaluationReport"],
    "evaluation.store": ["EvaluationResults", "FinishedEvaluation"],
    "gym.asynchronous": ["TaskSummary"],
    "gym.containment": ["ContainedFunction"],
    "gym.streams": ["AsyncProblemStream", "TaskLevel"],
    "problems.options": ["StreamOptions"],
    "records": ["Verdict"],
    "service.app": ["RewardService", "ServiceSettings", "create_app"],
    "storage.dumps": ["DumpContent", "read_dump"],
    "storage.rows": ["StoredGroup", "StoredRollout"],
}
"""What is public in modules of its own."""
NEW = [
    "Change",
    "ComparedEvaluation",
    "Comparison",
    "Estimate",
    "EvaluationReport",
    "EvaluationResults",
    "FinishedEvaluation",
    "TaskLevel",
]
"""Of these, what release 0.4 did not have in the package."""
INTEGRATIONS = {
    "inspect_ai": ["reasoning_gym"],
    "nemo_gym": ["nemo_gym_row"],
    "openenv": [
        "ReasoningGymAction",
        "ReasoningGymEnvironment",
        "ReasoningGymObservation",
        "SharedStream",
        "environment_app",
    ],
    "shared": ["evaluation_problems", "problem_row", "shared_gym"],
    "skyrl": ["ReasoningGymTextEnv", "among_scored", "skyrl_row"],
    "tinker": ["ReasoningGymGroupBuilder", "ReasoningGymProblemEnv"],
    "trl": ["ReasoningGymReward", "problem_dataset", "stream_dataset"],
    "unscored": ["among_scored"],
    "verifiers": [
        "ReasoningGymConfig",
        "ReasoningGymData",
        "ReasoningGymTask",
        "ReasoningGymTaskset",
    ],
    "verl": ["ReasoningGymDataset", "compute_score"],
}


def declared(module: Path) -> list[str]:
    """A module's `__all__`, read from its source: frameworks may not be installed."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def test_the_public_names_are_these() -> None:
    assert reasoning_gym_environment.__all__ == NAMES.split()


def test_every_public_name_can_be_imported() -> None:
    for name in reasoning_gym_environment.__all__:
        assert getattr(reasoning_gym_environment, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = reasoning_gym_environment.Nothing  # type: ignore[attr-defined]  # what is tested


def test_dir_lists_the_public_names() -> None:
    assert dir(reasoning_gym_environment) == sorted([*NAMES.split(), "__version__"])


def test_a_name_that_has_moved_is_imported_with_its_new_place() -> None:
    for module, names in MODULES.items():
        place = f"reasoning_gym_environment.{module}"
        for name in names:
            here = getattr(importlib.import_module(place), name)
            if name in NEW:
                continue
            with pytest.warns(DeprecationWarning, match=f"{name} .*{place}$") as caught:
                assert getattr(reasoning_gym_environment, name) is here
            assert caught[0].filename == __file__


def test_the_names_of_the_integrations_are_these() -> None:
    modules = [
        path
        for path in (FOLDER / "integrations").glob("*.py")
        if path.stem != "__init__"
    ]
    assert {module.stem: declared(module) for module in modules} == INTEGRATIONS


def test_the_reference_page_shows_the_public_names() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: reasoning_gym_environment\.([\w.]+)$", page, re.MULTILINE)
    adapters = {
        f"integrations.{module}": INTEGRATIONS[module] for module in INTEGRATIONS
    }
    theirs = [
        f"{module}.{name}"
        for module, names in {**MODULES, **adapters}.items()
        for name in names
    ]
    assert sorted(shown) == sorted(reasoning_gym_environment.__all__ + theirs)


def test_pages_examples_and_deployments_import_public_names_alone() -> None:
    programs = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "examples").rglob("*.*"),
        *(ROOT / "deploy").glob("*.*"),
    ]
    public = "|".join(map(re.escape, MODULES))
    private = re.compile(
        rf"(?:from|import) reasoning_gym_environment\.(?!integrations|(?:{public}) )[\w.]+"
    )
    texts = {path.name: path.read_text(errors="replace") for path in programs}
    del texts["CHANGELOG.md"]
    assert {
        name: found for name, text in texts.items() if (found := private.findall(text))
    } == {}


def test_a_wheel_has_every_file_that_is_no_module() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"package-data\]\n\w+ = \[(.*?)\]", settings, re.DOTALL)
    assert listed
    packed = {
        path for each in re.findall('"(.*?)"', listed[1]) for path in FOLDER.glob(each)
    }
    known = (".py", ".pyc")
    found = {p for p in FOLDER.rglob("*") if p.is_file() and p.suffix not in known}
    assert found == {path for path in packed if path.is_file()}
