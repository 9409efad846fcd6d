#!/bin/sh
# Snapshots that demos on a GPU write are read by PyTorch's own viewer, python -m torch.cuda._memory_viz.
#
#   tests/gpu/snapshot.sh                   builds what it runs with cargo
#   GPUMEM_BIN=DIR tests/gpu/snapshot.sh    builds nothing: takes DIR/gpumem-tui
#   PYTHON=... tests/gpu/snapshot.sh        the Python that has torch (default python3)
#   GPUMEM_DEVICE=sim tests/gpu/snapshot.sh the simulated device: needs torch, but no GPU
#
# Exit code 0 when every check passed or there is nothing to check with (it says SKIPPED and why; with GPUMEM_REQUIRE_GPU=1 it
# fails); 1 otherwise.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}
device=${GPUMEM_DEVICE:-cuda:0}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

skip() {
    echo "SKIPPED: $1"
    [ -z "${GPUMEM_REQUIRE_GPU:-}" ]
    exit
}
[ "$device" = sim ] || nvidia-smi -L >/dev/null 2>&1 || skip "nvidia-smi sees no GPU"
"$python" -c 'import torch' 2>/dev/null || skip "$python has no torch"
"$python" -c 'import torch; print("torch", torch.__version__)'

if [ -n "${GPUMEM_BIN:-}" ]; then
    bin=$GPUMEM_BIN
else
    cargo build --release --manifest-path "$here/../../Cargo.toml" -p gpumem-tui
    bin=$(cargo metadata --format-version 1 --no-deps --manifest-path "$here/../../Cargo.toml" |
        sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release
fi

failed=0
check() {
    name=$1
    shift
    if "$@" >"$scratch/out" 2>&1; then
        echo "PASS $name"
    else
        echo "FAIL $name (exit $?)"
        tail -n 5 "$scratch/out"
        failed=1
    fi
}
# Its other commands (segments, memory, ...) draw with a script that they download.
plot() {
    "$python" -m torch.cuda._memory_viz "$1" "$2" -o "$scratch/plot.html" && test -s "$scratch/plot.html"
}
text() {
    "$python" -m torch.cuda._memory_viz "$1" "$2" >"$scratch/text" && test -s "$scratch/text"
}

for segments in plain virtual stitched; do
    for kind in pickle json; do
        check "$segments: demo writes $kind" "$bin/gpumem-tui" demo train --headless --device "$device" --steps 20 --pace 1ms \
            --leak --conf "segments:$segments,history:[events:200000,stacks:all]" --snapshot "$scratch/$segments.$kind"
    done
    shot=$scratch/$segments.pickle
    for command in segment_plot trace_plot; do
        rm -f "$scratch/plot.html"
        check "$segments: $command" plot $command "$shot"
    done
    for command in stats trace; do
        check "$segments: $command" text $command "$shot"
    done
    check "$segments: JSON says the same" "$python" - "$shot" "$scratch/$segments.json" <<'PYTHON'
import json, pickle, sys
both = [pickle.load(open(sys.argv[1], "rb")), json.load(open(sys.argv[2]))]
assert all(set(one) == set(both[0]) for one in both), [set(one) for one in both]
for one in both:
    for segment in one["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    actions = [entry["action"] for entry in one["device_traces"][-1]]
    assert {"alloc", "free_requested", "free_completed"} <= set(actions), set(actions)
    print(len(one["segments"]), "segments,", len(actions), "events")
PYTHON
done
exit $failed
