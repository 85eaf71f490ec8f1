#!/usr/bin/env bash
#SBATCH --job-name=reasoning-gym
#SBATCH --ntasks=6
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=2G
#SBATCH --signal=TERM@120
# Environment replicas that feed one Atropos API, and reward services for other trainers:
#
#   sbatch --export=ALL,API_URL=http://trainer:8000,INFERENCE_URL=http://vllm:9001/v1 deploy/slurm.sh environment.yaml
#
# The first SERVICES tasks (default 0) are reward services on PORT (default 8080), and on the ports
# after it if a node has several. They need REASONING_GYM_REWARDS_TOKEN, and TASK_MODULES if there are
# tasks of your own, on a file system that all nodes see. The other tasks are replicas,
# named by their number, so that a restarted job finds their checkpoints and curricula. The script
# restarts a replica that exits with 75, which means "try again".
set -euo pipefail

if [ "${1:-}" != --one ]; then # on the first node, once
    : "${API_URL:?the URL of run-api}" "${INFERENCE_URL:?the URL of the inference server, with /v1}"
    test -r "${1:?the configuration file of the replicas}"
    # passes the script's text: Slurm runs a copy that other nodes do not see
    exec srun --kill-on-bad-exit=0 "$BASH" -c "$(cat "$0")" slurm.sh --one "$1"
fi

config=$2
if [ "$SLURM_PROCID" -lt "${SERVICES:-0}" ]; then
    : "${REASONING_GYM_REWARDS_TOKEN:?set it: others on this cluster can reach the services}"
    exec reasoning-gym-environment rewards --host 0.0.0.0 --port $((${PORT:-8080} + SLURM_LOCALID)) \
        ${TASK_MODULES:+--task-modules "$TASK_MODULES"}
fi
replica=$((SLURM_PROCID - ${SERVICES:-0}))
child=
trap 'kill -TERM "$child"' TERM
while :; do
    status=0
    reasoning-gym-environment serve --config "$config" \
        --env.rollout_server_url "$API_URL" --openai.base_url "$INFERENCE_URL" \
        --env.replica "$replica" --env.data_dumps_dir "dumps/$replica" &
    child=$!
    wait "$child" || status=$?
    # a signal ends the wait, but not the replica, which shuts down
    if kill -0 "$child" 2>/dev/null; then wait "$child" || status=$?; fi
    [ "$status" -eq 75 ] || exit "$status"
    echo "restarting replica $replica" >&2
    sleep 10
done
