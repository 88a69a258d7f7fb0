#!/usr/bin/env bash
# Compiles every CUDA kernel for sm_80 and sm_90, and fails on a warning, an error or a spilled register. Prints what can be
# read without a GPU: registers and shared memory of each kernel, and how many of its global loads are 16 bytes wide. Then
# checks that the program builds with the feature `cuda`. No GPU is needed, and nothing is run on one.
#
#   scripts/check-cuda.sh            also compares the kernels with the Rust kernels on a CPU that plays a GPU
#   scripts/check-cuda.sh --types    without that
#
# Uses the CUDA toolkit that is installed, else what scripts/setup-cuda.sh gets.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$(scripts/setup-cuda.sh)
out=target/cuda-check
mkdir -p "$out"
bad=0
printf '%-9s %-6s %-20s %9s %7s %6s %11s\n' file arch kernel registers shared spills 'LDG.128/all'
for source in kernels/cuda/*.cu; do
    name=$(basename "$source" .cu)
    for arch in 80 90; do
        cubin=$out/$name.sm_$arch.cubin
        "$home/bin/nvcc" -O3 -std=c++17 -Werror all-warnings --cubin -arch="sm_$arch" -Xptxas -v -o "$cubin" "$source" \
            2> "$out/log" || { cat "$out/log" >&2; exit 1; }
        sass=$out/$name.sm_$arch.sass
        if [ -x "$home/bin/cuobjdump" ]; then "$home/bin/cuobjdump" -sass "$cubin" > "$sass"; else : > "$sass"; fi
        awk -v file="$name" -v arch="sm_$arch" -v sass="$sass" '
            BEGIN {
                while ((getline line < sass) > 0) {
                    if (match(line, /Function : [A-Za-z0-9_]+/)) at = substr(line, RSTART + 11, RLENGTH - 11)
                    if (line ~ /LDG\.E/) { loads[at]++; if (line ~ /LDG\.E\.128/) wide[at]++ }
                }
            }
            /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
            /spill stores/ { spills = $5 + $9 }
            /Used [0-9]+ registers/ {
                match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
                shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH - 11) : 0
                printf "%-9s %-6s %-20s %9s %7s %6s %5d/%-5d\n", file, arch, kernel, registers, shared, spills, wide[kernel], loads[kernel]
                if (spills > 0) bad = 1
            }
            END { exit bad }' "$out/log" || bad=1
    done
done
[ "$bad" = 0 ] || exit "$bad"

# The device side builds, and the kernels say what the Rust kernels say.
export CUDA_HOME=$home
cargo check --features cuda
if [ "${1:-}" != --types ]; then cargo test -p loom-kernels --features cuda-emulation --test cuda; fi
