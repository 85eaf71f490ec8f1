"""The examples for supervisors follow the exit statuses of the program."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from reasoning_gym_environment.cli import COMMANDS
from reasoning_gym_environment.commands.openenv import build_parser
from reasoning_gym_environment.errors import TRY_AGAIN, ConfigurationError
from reasoning_gym_environment.service.app import ServiceSettings

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.37"
can_contain = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("unshare"),
    reason="needs Linux, root and unshare to make a container's conditions",
)


def test_systemd_starts_it_again_but_not_where_something_has_to_be_put_right() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names have capitals
    unit.read(DEPLOY / "reasoning-gym-environment.service")
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert (
        service["RestartPreventExitStatus"]
        == str(ConfigurationError.exit_status)
        == "2"
    )
    assert str(TRY_AGAIN) not in service["RestartPreventExitStatus"]
    assert service["SuccessExitStatus"] == "143"
    assert service["ExecStart"].split()[1] in COMMANDS


def test_kubernetes_counts_no_failure_where_a_command_may_succeed_later() -> None:
    job = yaml.safe_load((DEPLOY / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    rules = job["spec"]["podFailurePolicy"]["rules"]
    by_status = {
        status: rule["action"]
        for rule in rules
        for status in rule.get("onExitCodes", {}).get("values", [])
    }
    assert by_status == {ConfigurationError.exit_status: "FailJob", TRY_AGAIN: "Ignore"}
    named = {
        rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule
    }
    assert named == {container["name"]}
    assert pod["restartPolicy"] == "Never"  # what a failure policy asks for
    assert container["command"][1] in COMMANDS


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["kubernetes.yaml", "rewards.yaml"])
def test_manifests_are_valid_and_pods_may_do_no_more_than_they_must(name: str) -> None:
    kubernetes = pytest.importorskip(
        "kubernetes_validate", reason="needs the extra `nightly`"
    )
    manifests = [*yaml.safe_load_all((DEPLOY / name).read_text())]
    for manifest in manifests:
        kubernetes.validate(manifest, KUBERNETES, strict=True)
    pod = manifests[0]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert all("secretKeyRef" in variable["valueFrom"] for variable in container["env"])


def test_the_service_is_probed_and_has_time_to_end() -> None:
    deployment, service = yaml.safe_load_all((DEPLOY / "rewards.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["args"][0] in COMMANDS
    for kind in ("readiness", "liveness"):
        assert container[f"{kind}Probe"]["httpGet"]["path"] == "/health"
    assert pod["terminationGracePeriodSeconds"] > ServiceSettings().drain + 10
    assert (
        service["spec"]["selector"]
        == deployment["spec"]["template"]["metadata"]["labels"]
    )


def test_the_image_of_openenv_serves_at_the_port_that_clients_expect() -> None:
    lines = (
        (ROOT / "Dockerfile")
        .read_text()
        .partition("FROM none AS openenv")[2]
        .splitlines()
    )
    [entry] = [
        line.removeprefix("ENTRYPOINT ")
        for line in lines
        if line.startswith("ENTRYPOINT")
    ]
    program, command, *given = json.loads(entry)
    options = build_parser().parse(given)
    assert (program, command) == ("reasoning-gym-environment", "openenv")
    assert (options.host, options.port) == ("0.0.0.0", 8000)
    assert "EXPOSE 8000" in lines


@can_contain
@pytest.mark.processes
@pytest.mark.nightly
def test_hostile_texts_are_contained_in_a_strict_container() -> None:
    """All of them: forks, system call filter and limits work there as they do elsewhere."""
    done = subprocess.run(
        [
            ROOT / "tests" / "support" / "programs" / "strict_container.sh",
            sys.base_prefix,
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
            ),
            *("tests/sandbox/test_hostile_answers.py", "tests/sandbox/test_attacks.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_image_installs_what_is_locked_and_everything_locked_has_a_hash() -> None:
    lock = (DEPLOY / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", lock, re.MULTILINE))
    assert len(locked) == len(re.findall(r"^[a-z]", lock, re.MULTILINE)) > 50
    assert lock.count("--hash=sha256:") >= len(locked)
    assert "openenv" in locked
    assert "--constraint deploy/requirements.lock" in (ROOT / "Dockerfile").read_text()
    assert (
        "!deploy/requirements.lock" in (ROOT / ".dockerignore").read_text().splitlines()
    )
    tested = (ROOT / "requirements.txt").read_text().lower()
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+)(?: ; .*>=.*)?$", tested, re.MULTILINE)
    assert {name: locked[name] for name, _ in pinned} == dict(pinned)


def test_the_tested_versions_are_those_of_all_that_the_package_requires() -> None:
    project = (ROOT / "pyproject.toml").read_text().lower()
    required = project.partition("\ndependencies = [")[2].partition("]")[0]
    names = set(re.findall(r'"([a-z0-9-]+)', required))
    pinned = re.findall(
        r"^([a-z0-9-]+)==", (ROOT / "requirements.txt").read_text().lower(), re.M
    )
    assert names <= set(pinned)
