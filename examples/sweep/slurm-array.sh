#!/bin/bash
# A sweep as a Slurm array: one share per task, all into one folder that every node sees. docs/SWEEPS.md explains it.
#
#   sbatch --array=1-8 examples/sweep/slurm-array.sh sweep.yaml results/sweep
#   sbatch --array=1-8 --gpus-per-task=1 examples/sweep/slurm-array.sh sweep.yaml results/sweep     # a GPU per task
#SBATCH --job-name=loom-sweep
#SBATCH --cpus-per-task=4
#SBATCH --time=04:00:00
#SBATCH --requeue
# A minute before the time is up, so that the turns under way are finished:
#SBATCH --signal=INT@60
set -euo pipefail

# Slurm sets CUDA_VISIBLE_DEVICES to the GPUs of the task alone, so that its GPU is number 0.
device=cpu
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then device=cuda:0; fi

# Shares count from 1 and the number of shares is the number of tasks, so submit arrays as 1-N.
exec "${LOOM:-loom}" sweep "$1" --output "$2" \
    --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --threads "${SLURM_CPUS_PER_TASK:-1}" \
    --device "$device"
