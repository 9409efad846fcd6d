/* A C program that uses every part of the header. Compiled and run by the test beside it; prints what failed. */
#include <stdio.h>
#include <string.h>

#include "gpumem_alloc.h"

static int failures = 0;

static void check(int holds, const char *what)
{
    if (!holds) {
        const char *error = gpumem_last_error();
        printf("%s: %s\n", what, error ? error : "no message");
        failures++;
    }
}

int main(int argc, char **argv)
{
    const size_t mib = 1 << 20;
    const struct gpumem_pool_id pool = {1, 0};
    struct gpumem_device_stats stats;
    char report[4096];
    void *ptr, *captured;

    check(argc == 2, "one argument");
    gpumem_init(1);
    check(gpumem_record_history(0, GPUMEM_STACKS_ALLOC, 1000) == 0, "record_history");
    check(gpumem_scope_push("weights") == 0, "scope_push");
    ptr = gpumem_alloc(3 * mib, 0, NULL);
    check(ptr != NULL, "alloc");
    check(gpumem_scope_pop() == 0, "scope_pop");
    gpumem_begin_allocate_to_pool(0, pool, NULL);
    captured = gpumem_alloc(mib, 0, NULL);
    gpumem_end_allocate_to_pool(0, pool);
    check(captured != NULL, "alloc in a pool");
    check(gpumem_mark("forward") == 0 && gpumem_step() == 0, "mark, step");
    check(gpumem_peak_report(0, report, sizeof report) > 0 && strstr(report, "weights") != NULL, "peak_report");
    check(strstr(report, "\n      main") != NULL, "who called");
    check(gpumem_leak_report(0, 1, report, sizeof report) > 0, "leak_report");
    check(gpumem_snapshot(0, argv[1]) == 0, "snapshot");
    check(gpumem_stop_history(0) == 0, "stop_history");
    gpumem_free(ptr, 3 * mib, 0, NULL);
    gpumem_free(captured, mib, 0, NULL);
    check(gpumem_retire_stream(&stats) == 0, "retire_stream");
    gpumem_release_pool(0, pool);
    check(gpumem_compact(0) >= 0 && gpumem_empty_cache(-1) >= 0, "compact, empty_cache");
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    check(gpumem_stats(0, &stats) == 0 && stats.size == sizeof stats, "stats");
    check(stats.all.allocation.current == 0 && stats.all.allocation.peak == 2, "what the program held");
    check(stats.all.reserved_bytes.current == 0, "everything went back");
    check(gpumem_reset_peaks(0) == 0 && gpumem_reset_peaks(-1) == 0, "reset_peaks");
    check(gpumem_stats(0, &stats) == 0 && stats.all.allocation.peak == 0 && stats.all.reserved_bytes.peak == 0, "peaks");
    check(gpumem_error_count() == 0, "no call failed");
    return failures;
}
