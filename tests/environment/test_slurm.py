"""The job script for Slurm, whose `srun` here runs its tasks on this machine."""

import os
import random
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from serve_loop import training, until_pulled

from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer

JOB = Path(__file__).resolve().parents[2] / "deploy" / "slurm.sh"
INSTALLED = Path(sys.executable).parent
SRUN = """#!/usr/bin/env bash
# Runs four tasks side by side, and hands SIGTERM on to them as Slurm does.
[ "$1" = --kill-on-bad-exit=0 ] && shift
pids=()
for number in 0 1 2 3; do
    SLURM_PROCID=$number SLURM_LOCALID=$number "$@" &
    pids+=($!)
done
trap 'kill -TERM "${pids[@]}"' TERM
wait || true
for pid in "${pids[@]}"; do wait "$pid"; echo "ended with $?"; done
"""


def first_of_two_free_ports() -> int:
    """A port that is free, as is the one after it; the system gives neither to other programs."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as first, socket.socket() as second, suppress(OSError):
            first.bind(("0.0.0.0", port))
            second.bind(("0.0.0.0", port + 1))
            return port


@pytest.mark.nightly
async def test_a_job_runs_replicas_and_reward_services_until_slurm_ends_it(
    bench: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ScriptedPolicy([f"<answer>{n}</answer>" for n in (1, 2, 3, 4, 5)])
    programs = bench.folder / "bin"
    programs.mkdir()
    (programs / "srun").write_text(SRUN)
    (programs / "srun").chmod(0o755)
    async with (
        PolicyServer(honest, tokenizer) as server,
        ApiServer() as api,
        training(api, bench.folder, batch_size=8) as trainer,
    ):
        settings = bench.settings(
            ensure_scores_are_not_same=False,
            max_token_length=2048,
            dump_all_rollouts=True,
            total_steps=100_000,
        )
        config = bench.folder / "environment.yaml"
        config.write_text(
            yaml.safe_dump({"env": settings, "openai": bench.server(server.url)})
        )
        for name, value in {
            "API_URL": api.url,
            "INFERENCE_URL": f"{server.url}/v1",
            "SERVICES": "2",
            "PORT": str(first_of_two_free_ports()),
            "REASONING_GYM_REWARDS_TOKEN": "of sixteen signs or more",
            "PATH": os.pathsep.join(
                [str(programs), str(INSTALLED), os.environ["PATH"]]
            ),
        }.items():
            monkeypatch.setenv(name, value)
        async with bench.program(str(JOB), str(config)) as command:
            await until_pulled(trainer, command, batches=4)
            dumps = bench.folder / "dumps"
            await command.until(
                lambda: {path.name for path in dumps.glob("*")} == {"0", "1"}
            )
            await command.until(lambda: command.said().count("Ready") == 2)
            command.process.send_signal(signal.SIGTERM)
            await command.exit_code()
    ends = sorted(
        line for line in command.printed().splitlines() if "ended with" in line
    )
    assert ends == ["ended with 0"] * 2 + ["ended with 143"] * 2, command.said()
