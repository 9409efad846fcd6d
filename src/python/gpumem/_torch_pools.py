"""PyTorch's private pools on gpumem's allocator: torch.cuda.MemPool, which PyTorch refuses to create with a pluggable allocator, and
the pools of trees of CUDA graphs (torch.compile with mode="reduce-overhead" or "max-autotune").
"""

from __future__ import annotations

import ctypes
from typing import Any, List, Sequence, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from . import _c_abi


def answer(library: ctypes.CDLL) -> None:
    """Replaces torch's functions and its class MemPool."""

    def is_held(device: int, pool: Tuple[int, int], addresses: Sequence[int]) -> bool:
        return set(held(library, device, pool)) == set(addresses)

    class Use:
        """A use of a pool. The pool exists until every use is released."""

        def __init__(self, id: Tuple[int, int]) -> None:
            self.id, device, pool = tuple(id), torch.cuda.current_device(), _c_abi.PoolId(*id)
            before = library.gpumem_pool_uses(device, pool)
            library.gpumem_begin_allocate_to_pool(device, pool, None)
            if library.gpumem_pool_uses(device, pool) <= max(0, before):
                raise RuntimeError(_c_abi.last_error(library))
            library.gpumem_end_allocate_to_pool(device, pool)
            self.device, self.pool = device, pool

        def __del__(self) -> None:
            if hasattr(self, "pool"):
                library.gpumem_release_pool(self.device, self.pool)

    class MemPool:
        """Stands in for torch.cuda.MemPool, for torch.cuda.use_mem_pool() and torch.cuda.graph(pool=...)."""

        def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
            if allocator is not None or use_on_oom or no_split:
                raise RuntimeError(
                    "gpumem's pools use gpumem's memory, serve no other pool, and split blocks: the options of MemPool are not supported"
                )
            # PyTorch counts the pools of its graphs as well.
            self.id = torch.cuda.graph_pool_handle()
            self._use = Use(self.id)

        @property
        def allocator(self) -> None:
            return None

        def use_count(self) -> int:
            return max(0, int(library.gpumem_pool_uses(self._use.device, self._use.pool)))

        def snapshot(self, include_traces: bool = True) -> Any:
            return torch.cuda.memory_snapshot(self.id)

    if hasattr(torch._C, "_cuda_checkPoolLiveAllocations"):
        torch._C._cuda_checkPoolLiveAllocations = is_held
    for module in (torch.cuda, torch.cuda.memory):
        if hasattr(module, "MemPool"):
            module.MemPool = MemPool
    # From 2.14 on a graph keeps the pools used during its capture until it is reset or destroyed.
    if hasattr(getattr(torch.cuda, "CUDAGraph", None), "_retain_pool"):
        pools = torch.cuda.CUDAGraph.pools

        def retained(graph: Any) -> List[Any]:
            return [use.id for use in graph._retained.objects.values() if isinstance(use, Use)]

        def all_pools(graph: Any) -> List[Any]:
            return list(dict.fromkeys([*pools(graph), *map(torch.cuda._POOL_HANDLE, retained(graph))]))

        def retain_pool(graph: Any, pool: Any) -> None:
            id = tuple(pool.id if isinstance(pool, MemPool) else pool)
            if id not in retained(graph):
                graph.retain_object(Use(id))

        torch.cuda.CUDAGraph._retain_pool, torch.cuda.CUDAGraph.pools = retain_pool, all_pools


def held(library: ctypes.CDLL, device: int, pool: Tuple[int, int]) -> List[int]:
    """Returns the addresses of the blocks that the program holds in a pool."""
    room = 1 << 10
    while True:
        addresses = (ctypes.c_uint64 * room)()
        count = _c_abi.check(library, library.gpumem_pool_held(device, _c_abi.PoolId(*pool), addresses, room))
        if count <= room:
            return addresses[:count]
        room = count
