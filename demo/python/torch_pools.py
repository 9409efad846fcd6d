"""PyTorch's private pools on gpumem's allocator: torch.cuda.MemPool, which PyTorch refuses to create with a pluggable allocator, and
the pools of trees of CUDA graphs (torch.compile with mode="reduce-overhead" or "max-autotune").

    torch_pools.answer(library)           torch_pluggable.install() does this
"""

import ctypes

import gpumem
import torch


def answer(library: ctypes.CDLL) -> None:
    def is_held(device: int, pool, addresses) -> bool:
        return set(held(library, device, pool)) == set(addresses)

    class Use:
        """A use of a pool. The pool exists until every use is released."""

        def __init__(self, pool):
            self.id, device, pool = tuple(pool), torch.cuda.current_device(), gpumem.PoolId(*pool)
            before = library.gpumem_pool_uses(device, pool)
            library.gpumem_begin_allocate_to_pool(device, pool, None)
            if library.gpumem_pool_uses(device, pool) <= max(0, before):
                raise RuntimeError(gpumem.last_error(library))
            library.gpumem_end_allocate_to_pool(device, pool)
            self.device, self.pool = device, pool

        def __del__(self):
            if hasattr(self, "pool"):
                library.gpumem_release_pool(self.device, self.pool)

    class MemPool:
        """Stands in for torch.cuda.MemPool, for torch.cuda.use_mem_pool() and torch.cuda.graph(pool=...)."""

        def __init__(self, allocator=None, use_on_oom: bool = False, no_split: bool = False):
            if allocator is not None or use_on_oom or no_split:
                raise RuntimeError("gpumem's pools use gpumem's memory, serve no other pool, and split blocks: the options of MemPool are not supported")
            # PyTorch counts the pools of its graphs as well.
            self.id = torch.cuda.graph_pool_handle()
            self._use = Use(self.id)

        @property
        def allocator(self):
            return None

        def use_count(self) -> int:
            return max(0, library.gpumem_pool_uses(self._use.device, self._use.pool))

        def snapshot(self, include_traces: bool = True):
            return torch.cuda.memory_snapshot(self.id)

    if hasattr(torch._C, "_cuda_checkPoolLiveAllocations"):
        torch._C._cuda_checkPoolLiveAllocations = is_held
    for module in (torch.cuda, torch.cuda.memory):
        if hasattr(module, "MemPool"):
            module.MemPool = MemPool
    # From 2.14 on a graph keeps the pools used during its capture until it is reset or destroyed.
    if hasattr(getattr(torch.cuda, "CUDAGraph", None), "_retain_pool"):
        pools = torch.cuda.CUDAGraph.pools

        def retained(graph) -> list:
            return [use.id for use in graph._retained.objects.values() if isinstance(use, Use)]

        def all_pools(graph) -> list:
            return list(dict.fromkeys([*pools(graph), *map(torch.cuda._POOL_HANDLE, retained(graph))]))

        def retain_pool(graph, pool) -> None:
            id = tuple(pool.id if isinstance(pool, MemPool) else pool)
            if id not in retained(graph):
                graph.retain_object(Use(id))

        torch.cuda.CUDAGraph._retain_pool, torch.cuda.CUDAGraph.pools = retain_pool, all_pools


def held(library: ctypes.CDLL, device: int, pool) -> list[int]:
    """Returns the addresses of the blocks that the program holds in a pool."""
    room = 1 << 10
    while True:
        addresses = (ctypes.c_uint64 * room)()
        count = library.gpumem_pool_held(device, gpumem.PoolId(*pool), addresses, room)
        if count < 0:
            raise RuntimeError(gpumem.last_error(library))
        if count <= room:
            return addresses[:count]
        room = count
