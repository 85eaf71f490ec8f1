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
# The first SERVICES of the tasks (0, if it isn't set) are reward services, on PORT (8080) and those
# after it where a node has several; they need REASONING_GYM_REWARDS_TOKEN. All others are replicas. A replica has the name of its number, so that a job that is started again finds their
# checkpoints and curricula. Each is started again after 75, which says "try again".
set -euo pipefail

if [ "${1:-}" != --one ]; then # on the first node, once
    : "${API_URL:?the URL of run-api}" "${INFERENCE_URL:?the URL of the inference server, with /v1}"
    test -r "${1:?the configuration file of the replicas}"
    # by its text: Slurm runs a copy that other nodes don't see
    exec srun --kill-on-bad-exit=0 "$BASH" -c "$(cat "$0")" slurm.sh --one "$1"
fi

config=$2
if [ "$SLURM_PROCID" -lt "${SERVICES:-0}" ]; then
    : "${REASONING_GYM_REWARDS_TOKEN:?who else is on this cluster may ask the services, too}"
    exec reasoning-gym-environment rewards --host 0.0.0.0 --port $((${PORT:-8080} + SLURM_LOCALID))
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
    # a signal ends the wait, not the replica, which takes its leave
    if kill -0 "$child" 2>/dev/null; then wait "$child" || status=$?; fi
    [ "$status" -eq 75 ] || exit "$status"
    echo "replica $replica is started again" >&2
    sleep 10
done
