"""Who takes GPU memory in this process besides torch's allocator, as far as can be seen without asking the driver."""

from __future__ import annotations

import sys
from typing import Any, List

# Modules that have allocators of their own.
MODULES = {
    "cupy": "CuPy",
    "rmm": "RMM",
    "jaxlib": "JAX",
    "tensorflow": "TensorFlow",
    "numba.cuda": "Numba",
    "pycuda": "PyCUDA",
    "warp": "Warp",
    "tensorrt": "TensorRT",
    "onnxruntime": "ONNX Runtime",
    "faiss": "Faiss",
    "nvshmem": "NVSHMEM",
    "nvidia.dali": "DALI",
}


def names(torch: Any, graph_pools: int) -> str:
    """Returns their names, such as "NCCL (2 groups), CuPy"; empty if none is known. `graph_pools`: the number of pools of CUDA graphs."""
    found: List[str] = []
    groups = nccl_groups(torch)
    if groups:
        found.append("NCCL ({} {})".format(groups, "group" if groups == 1 else "groups"))
    if graph_pools:
        found.append("CUDA graphs ({} {})".format(graph_pools, "pool" if graph_pools == 1 else "pools"))
    found += [name for module, name in MODULES.items() if module in sys.modules]
    return ", ".join(found)


def nccl_groups(torch: Any) -> int:
    """Returns the number of process groups that use NCCL. Each has buffers of its own from its first operation on."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_initialized():
            return 0
        groups = list(distributed.distributed_c10d._world.pg_map.values())
    except (AttributeError, RuntimeError):
        # Builds without it; a map that changes meanwhile; names that other versions do not have.
        return 0
    return sum(1 for group in groups if "nccl" in str(group[0]).lower())
