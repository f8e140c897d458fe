#!/usr/bin/env bash
#SBATCH --job-name=fl-audit
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00
# sbatch slurm.sh audit.toml runs/cluster    (again with a third word, --resume, to go on with a run that was cut short)
set -euo pipefail
config=$1 out=$2 resume=${3:-}

# Where fl_audit is installed, on every node: source .venv/bin/activate, or a module of the site.
umask 077
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(python3 -c 'import secrets; print(secrets.token_hex(32))')

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}')

# Ray's sockets lie in a directory of each node that no other account can enter.
srun --nodes=1 --ntasks=1 -w "$head" --overlap \
    sh -c 'ray start --head --temp-dir="$(mktemp -d)/ray" "$@" --block' ray \
    --node-ip-address="$address" --port=6379 --num-cpus="$SLURM_CPUS_PER_TASK" &
sleep 15
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 -w "$node" --overlap \
        sh -c 'ray start --temp-dir="$(mktemp -d)/ray" "$@" --block' ray \
        --address="$address:6379" --num-cpus="$SLURM_CPUS_PER_TASK" &
done
sleep 15

# On a node of the cluster, the only one that needs the data.
srun --nodes=1 --ntasks=1 -w "$head" --overlap \
    fl-audit run "$config" --out "$out" --ray-address "$address:6379" ${resume:+"$resume"}
