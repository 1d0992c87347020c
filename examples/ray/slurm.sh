#!/bin/bash
# A Ray cluster for one job of Slurm, with abreast as its driver: sbatch examples/ray/slurm.sh
# Put your own command into the last lines. The project's directory must be on a file system that all nodes share.
#SBATCH --job-name=abreast
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=02:00:00
set -euo pipefail

# The same environment on all nodes: Python, abreast[ray] and your code in equal versions.
source .venv/bin/activate

port=6379
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0

srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
# Nodes that come before the head try again.
sleep 15
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
        ray start --address="$head:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
    sleep 15
fi

export RAY_ADDRESS="$head:$port"
# After the time limit, or a crash, `abreast resume last` in a new job goes on where this one ended.
abreast map --executor ray --width $((SLURM_JOB_NUM_NODES * SLURM_CPUS_PER_TASK)) \
    --input items.txt -- ./work.sh {}
