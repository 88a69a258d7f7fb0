#!/usr/bin/env bash
# Runs a sweep in three shards as an array under Slurm on this machine and merges them: the report must be equal, byte for
# byte, to that of one process. Starts munged, slurmctld and slurmd with files under target/slurm and stops them again.
#
# Needs root, Debian's `slurm-wlm` and `munge`, and a built `loom` (LOOM=…, else target/debug/loom). If the daemons cannot
# start, it exits with 77; `cargo test --test it sweep::` does the same with plain processes.
set -euo pipefail
cd "$(dirname "$0")/.."

loom=$(realpath "${LOOM:-target/debug/loom}")
for tool in munged slurmctld slurmd sbatch; do
    PATH=$PATH:/usr/sbin command -v $tool > /dev/null || { echo "no $tool: apt-get install slurm-wlm munge" >&2; exit 77; }
done
PATH=$PATH:/usr/sbin
folder=$PWD/target/slurm
rm -rf "$folder"
mkdir -p "$folder"/{state,spool,munge}
chmod 700 "$folder/munge"

host=$(hostname -s)
cat > "$folder/slurm.conf" << CONF
ClusterName=loom
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$folder/slurm.conf

daemons=()
stop() {
    [ ${#daemons[@]} -eq 0 ] || kill "${daemons[@]}" 2> /dev/null || true
    wait
}
trap stop EXIT
cannot() { echo "Slurm cannot start here: $*" >&2; tail -n 5 "$folder"/*.log >&2; exit 77; }

# The key is created here, in a folder that only root can read.
dd if=/dev/urandom of="$folder/munge/key" bs=1024 count=1 status=none
chmod 400 "$folder/munge/key"
munged --foreground --force --socket "$folder/munge/socket" --key-file "$folder/munge/key" --pid-file "$folder/munge/pid" \
    --log-file "$folder/munged.log" --seed-file "$folder/munge/seed" > "$folder/munged.out" 2>&1 &
daemons+=($!)
slurmctld -D > "$folder/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D -N "$host" > "$folder/slurmd.log" 2>&1 &
daemons+=($!)
for _ in $(seq 30); do
    state=$(sinfo --noheader --format=%T 2> /dev/null || true)
    [ "$state" = idle ] && break
    sleep 1
done
[ "$state" = idle ] || cannot "the node is '$state'"

sweep=tests/data/sweep/sweep.yaml
"$loom" sweep $sweep --output "$folder/whole" > "$folder/whole.log" 2>&1 || { cat "$folder/whole.log"; exit 1; }
LOOM=$loom sbatch --wait --array=1-3 --cpus-per-task=1 --output="$folder/task-%a.log" \
    examples/sweep/slurm-array.sh $sweep "$folder/shares"
"$loom" merge "$folder/shares" --output "$folder/shares"
for file in sweep.json sweep_report.json sweep_report.md; do
    cmp "$folder/whole/$file" "$folder/shares/$file"
done
grep -h complete "$folder"/task-*.log
echo 'three shards under Slurm merge to the bytes of one process'
