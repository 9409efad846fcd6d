#!/bin/sh
# PyTorch and CuPy on libgpumem_alloc.so, on a machine with an NVIDIA GPU: the same programs with their own allocator and with this
# one give the same results to the bit, end without a word on stderr, and the dashboard shows their blocks. What torch.cuda says of
# memory, budgets, what is caught when memory runs out, CUDA graphs, trees of them, pools that a program makes, tensors that processes
# share, a pool of PyTorch's whose segments are ours, training and answering on several streams while the GPU is behind, memory shared by
# CUDA IPC, two GPUs that use each other's memory where there are two, and training over them by NCCL, random programs on several threads
# and streams whose every block is compared, the same on each thread's own default stream, streams that end without a word, graphs that
# nobody tells of, threads that never used CUDA, exits and forks, and the same memory at two addresses.
#
#   tests/gpu/c_abi.sh                   builds what it runs with cargo
#   GPUMEM_BIN=DIR tests/gpu/c_abi.sh    builds nothing: takes DIR/libgpumem_alloc.so and DIR/gpumem-tui
#   PYTHON=... tests/gpu/c_abi.sh        the Python that has the packages (default python3)
#
# RMM, too, where it is installed. What cannot be imported is skipped, with a line; without a GPU all is, or with
# GPUMEM_REQUIRE_GPU=1 nothing is and it fails. Exit code 0 when every check passed or was skipped; 1 otherwise.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$here/../..

command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1 || {
    echo "SKIPPED: nvidia-smi sees no GPU"
    [ -z "${GPUMEM_REQUIRE_GPU:-}" ]
    exit
}
nvidia-smi -L

if [ -n "${GPUMEM_BIN:-}" ]; then
    bin=$GPUMEM_BIN
else
    cargo build --manifest-path "$root/Cargo.toml" --profile embed -p gpumem-alloc-c
    cargo build --manifest-path "$root/Cargo.toml" --profile embed -p gpumem-tui
    bin=$(cargo metadata --format-version 1 --no-deps --manifest-path "$root/Cargo.toml" |
        sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/embed
fi
failed=0
"${PYTHON:-python3}" "$here/ipc.py" "$bin" || failed=1
"${PYTHON:-python3}" "$here/peers.py" "$bin" || failed=1
"${PYTHON:-python3}" "$here/distributed.py" "$bin" || failed=1
"${PYTHON:-python3}" "$here/c_abi.py" compare "$bin" || failed=1
"${PYTHON:-python3}" "$here/hazards.py" "$bin" || failed=1
"${PYTHON:-python3}" "$here/alias.py" || failed=1
"${PYTHON:-python3}" "$here/torch_random.py" "$bin" || failed=1
"${PYTHON:-python3}" "$here/threads.py" "$bin" || failed=1
exit $failed
