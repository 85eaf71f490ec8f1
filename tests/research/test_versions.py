"""The comparison of two versions of the library, one of them a copy with planted faults."""

import json
import shutil
import venv
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment.errors import FixableError
from research.labels.__main__ import main
from research.labels.versions import near_answers, other_interpreter

PLANTED = {
    "arithmetic/gcd.py": """
def _within_one_percent(self, answer, entry):
    try:
        return float(abs(float(answer) - float(entry["answer"])) <= 0.01 * float(entry["answer"]))
    except ValueError:
        return 0.0

GCDDataset.score_answer = _within_one_percent
""",
    "arithmetic/lcm.py": """
_item = LCMDataset.__getitem__
LCMDataset.__getitem__ = lambda self, index: {**_item(self, index), "answer": "4711"}
""",
    "arithmetic/products.py": """
ProductsDataset.score_answer_cascade = lambda self, answer, entry: 1.0
""",
    "arithmetic/prime_factorization.py": """
from ..factory import CURRICULA, DATASETS

del CURRICULA["prime_factorization"], DATASETS["prime_factorization"]
""",
    "arithmetic/power_function.py": """
_old = PowerFunctionDataset.__getitem__

def _reworded(self, index):
    entry = _old(self, index)
    return {**entry, "question": "Please: " + entry["question"]}

PowerFunctionDataset.__getitem__ = _reworded
""",
}


@pytest.fixture(scope="module")
def altered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a copy of the installed library that has the planted faults."""
    folder = tmp_path_factory.mktemp("altered")
    spec = find_spec("reasoning_gym")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, folder / "reasoning_gym")
    for name, code in PLANTED.items():
        with (folder / "reasoning_gym" / name).open("a") as module:
            module.write(code)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.nightly
@pytest.mark.processes
def test_planted_faults_are_found(
    altered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = "chain_sum,gcd,lcm,power_function,prime_factorization,products"
    options = ["--tasks", tasks, "--items", "2", "--level-items", "1"]
    assert main(["against", str(altered), *options, "--json"]) == 1
    found: dict[str, dict[str, list[Any]]] = {}
    for each in json.loads(capsys.readouterr().out)["differences"]:
        found.setdefault(each["task"], {}).setdefault(each["kind"], []).append(each)
    more = "pays more than before for a wrong answer"
    assert found["prime_factorization"].keys() == {"task is gone"}
    [label] = found["lcm"]["labels differ for the same question"]
    assert (label["items"], label["after"]) == (label["of"], "4711")
    [question] = found["power_function"].pop("questions differ")
    assert question["after"].startswith("'Please: ")
    assert found["power_function"] == {}
    details = {each["detail"]: each["items"] for each in found["products"][more]}
    assert details["score_answer_cascade, near miss 'other sign'"] == 2
    assert all(
        each["detail"].startswith("score_answer, ") for each in found["gcd"][more]
    )
    assert "chain_sum" not in found


@pytest.mark.nightly
@pytest.mark.processes
def test_a_task_without_a_difference_passes(
    altered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--tasks", "chain_sum", "--items", "1", "--level-items", "1"]
    assert main(["against", str(altered), *options]) == 0
    assert "items in both versions: nothing differs" in capsys.readouterr().out


@pytest.mark.processes
def test_a_requirement_that_pip_cant_install_is_named(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    with pytest.raises(
        FixableError, match=r"reasoning-gym==0\.0\.7: pip can't install it \(.+pip"
    ):
        other_interpreter("0.0.7", tmp_path)


def test_near_numbers_are_wrong_and_other_forms_are_right() -> None:
    probes = {tried.answer: tried.is_right for tried in near_answers("12345")}
    wrong = ["12400", "12345.6", "12468.45", "-12345"]
    assert probes == {
        **dict.fromkeys(wrong, False),
        **dict.fromkeys([r"\text{12345}", r"\(12345\)"], True),
    }
    assert all(tried.is_right for tried in near_answers("Anna"))
    assert [tried.answer for tried in near_answers("0") if not tried.is_right] == [
        "0.6"
    ]
