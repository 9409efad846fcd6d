#!/bin/sh
# Tests for a machine with an NVIDIA GPU.
#
#   tests/gpu/run.sh                     builds what it runs with cargo
#   GPUMEM_BIN=DIR tests/gpu/run.sh      builds nothing: runs DIR/gpumem-tui and DIR/gpu_check
#   GPUMEM_GPU=1 tests/gpu/run.sh        on GPU 1 instead of 0
#   GPUMEM_REQUIRE_GPU=1 tests/gpu/run.sh    a missing GPU is a failure
#
# Runs the allocator, the kernels and every demo on the GPU, then the dashboard beside a demo that holds memory, and
# compares what it says with nvidia-smi, to the MiB. Nothing else may start or end on that GPU meanwhile.
#
# Exit code: 0 when every check passed, or when there is no GPU (it then prints SKIPPED and why); 1 otherwise.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
gpu=${GPUMEM_GPU:-0}
scratch=$(mktemp -d)
demo=
end() {
    [ -z "$demo" ] || kill "$demo" 2>/dev/null || true
    rm -rf "$scratch"
}
trap end EXIT
trap 'exit 1' INT TERM HUP

skip() {
    echo "SKIPPED: $1"
    [ -n "${GPUMEM_REQUIRE_GPU:-}" ] && exit 1
    exit 0
}

command -v nvidia-smi >/dev/null 2>&1 || skip "no nvidia-smi on this machine, so no NVIDIA driver"
nvidia-smi -i "$gpu" --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$scratch/gpu" 2>&1 ||
    skip "nvidia-smi sees no GPU $gpu: $(head -n 1 "$scratch/gpu")"
echo "GPU $gpu: $(cat "$scratch/gpu")"

if [ -n "${GPUMEM_BIN:-}" ]; then
    bin=$GPUMEM_BIN
else
    cargo build --release --manifest-path "$here/../../Cargo.toml" -p gpumem-tui
    cargo build --release --manifest-path "$here/../../Cargo.toml" -p gpumem-demo --example gpu_check
    target=$(cargo metadata --format-version 1 --no-deps --manifest-path "$here/../../Cargo.toml" |
        sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    mkdir "$scratch/bin"
    cp "$target/release/gpumem-tui" "$target/release/examples/gpu_check" "$scratch/bin/"
    bin=$scratch/bin
fi

failed=0
check() {
    name=$1
    shift
    if "$@"; then
        echo "PASS $name"
    else
        echo "FAIL $name (exit $?)"
        failed=1
    fi
}

check "allocator, kernels and demos as a library" "$bin/gpu_check" "$gpu"

for fix in release remap workspace; do
    check "demo fragmentation, fix $fix" sh -c \
        "'$bin/gpumem-tui' demo fragmentation --headless --json --device cuda:$gpu --fix $fix >'$scratch/$fix.json' &&
         python3 '$here/compare.py' demo '$scratch/$fix.json'"
done
check "demo train" sh -c \
    "'$bin/gpumem-tui' demo train --headless --json --device cuda:$gpu --steps 20 --pace 0s >'$scratch/train.json' &&
     python3 '$here/compare.py' demo '$scratch/train.json'"

check "demo unified" sh -c \
    "'$bin/gpumem-tui' demo unified --headless --json --device cuda:$gpu >'$scratch/unified.json' &&
     python3 '$here/compare.py' demo '$scratch/unified.json'"

# A demo that holds its memory until its stdin ends: the dashboard and nvidia-smi look at the same thing.
mkfifo "$scratch/steer"
"$bin/gpumem-tui" demo fragmentation --headless --json --steer --device "cuda:$gpu" \
    <"$scratch/steer" >"$scratch/held.json" &
demo=$!
exec 3>"$scratch/steer"
echo next >&3
tries=0
until grep -q free-every-other "$scratch/held.json"; do
    tries=$((tries + 1))
    [ "$tries" -le 300 ] && kill -0 "$demo" 2>/dev/null || { echo "FAIL the demo did not get ready"; exit 1; }
    sleep 0.1
done
check "dashboard against nvidia-smi, to the MiB" \
    python3 "$here/compare.py" dashboard "$bin/gpumem-tui" "$gpu" "$demo" "$scratch/held.json"
exec 3>&-
check "the demo ends when its stdin does" wait "$demo"
demo=

exit "$failed"
