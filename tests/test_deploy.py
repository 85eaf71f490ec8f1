"""The examples for supervisors follow the exit statuses of the program."""

import configparser
from pathlib import Path

import yaml

from reasoning_gym_environment.cli import COMMANDS
from reasoning_gym_environment.errors import TRY_AGAIN, ConfigurationError

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"


def test_systemd_starts_it_again_but_not_where_something_has_to_be_put_right() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names have capitals
    unit.read(DEPLOY / "reasoning-gym-environment.service")
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == str(ConfigurationError.exit_status) == "2"
    assert str(TRY_AGAIN) not in service["RestartPreventExitStatus"]
    assert service["SuccessExitStatus"] == "143"
    assert service["ExecStart"].split()[1] in COMMANDS


def test_kubernetes_counts_no_failure_where_the_same_command_may_succeed_later() -> None:
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
    assert {r["onExitCodes"]["containerName"] for r in rules if "onExitCodes" in r} == {
        container["name"]
    }
    assert pod["restartPolicy"] == "Never"  # what a failure policy asks for
    assert container["command"][1] in COMMANDS
