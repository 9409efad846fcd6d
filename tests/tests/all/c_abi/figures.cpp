// The header's structs by their names alone, as C++ has them.
#include "gpumem_alloc.h"

int main()
{
    gpumem_device_stats stats{};
    stats.size = sizeof stats;
    const gpumem_pool_stats &pool = stats.small_pool;
    const gpumem_stat &stat = pool.allocation;
    const gpumem_pool_id id{7, 1};
    const gpumem_stacks stacks = GPUMEM_STACKS_NONE;
    gpumem_begin_allocate_to_pool(0, id, nullptr);
    return gpumem_stats(0, &stats) + gpumem_record_history(0, stacks, stat.current);
}
