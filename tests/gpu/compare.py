#!/usr/bin/env python3
"""The comparisons of run.sh.

    compare.py demo FILE                          the demo's lines end in a result that holds
    compare.py dashboard GPUMEM_TUI GPU PID FILE  what the dashboard says of a GPU and of the demo PID, whose lines are in
                                                  FILE, is what nvidia-smi and the demo itself say, to the MiB
"""

import json
import subprocess
import sys

MIB = 1 << 20


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def demo(path):
    last = lines(path)[-1]
    assert last["type"] == "result", f"the last line is {last}"
    result = last["result"]
    for key in ("failed_before", "succeeded_after", "patterns_verified"):
        assert result[key] is not False, f"{key} does not hold: {result}"
    assert result["reserved_at_end"] == 0, f"memory was left behind: {result}"
    print({key: value for key, value in result.items() if value is not None})


def nvidia_smi(gpu, query, fields):
    command = ["nvidia-smi", "-i", gpu, f"--query-{query}={','.join(fields)}", "--format=csv,noheader,nounits"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in row.split(",")] for row in out.splitlines() if row.strip()]


def dashboard(tui, gpu, pid, path):
    uuid, *sizes = nvidia_smi(gpu, "gpu", ["uuid", "memory.total", "memory.reserved", "memory.used", "memory.free"])[0]
    total, reserved, used, free = (int(size) for size in sizes)
    held = {int(p): int(size) for p, size in nvidia_smi(gpu, "compute-apps", ["pid", "used_memory"])}
    report = json.loads(subprocess.run([tui, "--json"], capture_output=True, text=True, check=True).stdout)
    assert report["schema"] == "gpumem/1", report["schema"]
    wrong = []

    def same_mib(what, ours, theirs):
        """Bytes of ours against whole MiB of nvidia-smi's, which it may have rounded either way."""
        print(f"  {what:<44} {ours / MIB:>10.2f} {theirs:>8} MiB")
        if abs(ours / MIB - theirs) >= 1:
            wrong.append(what)

    def same(what, ours, theirs):
        print(f"  {what:<44} {ours!s:>14} {theirs!s:>14}")
        if ours != theirs:
            wrong.append(what)

    device = next(d for d in report["devices"] if d["uuid"] == uuid)
    memory = device["memory"]
    same_mib("total", memory["total"], total)
    same_mib("driver-reserved", memory["driver_reserved"], reserved)
    same_mib("used: allocated + cached + other", memory["allocated"] + memory["cached"] + memory["other"], used)
    same_mib("free", memory["free"], free)
    parts = sum(memory[part] for part in ("allocated", "cached", "other", "driver_reserved", "free"))
    same("the sum of the parts, in bytes", parts, memory["total"])
    same("publishers and driver disagree", memory["skewed"], False)

    process = next(p for p in report["processes"] if p["pid"] == int(pid))
    same("state of the demo", process["state"], "publishing")
    if int(pid) in held:
        same_mib("the demo, as the driver counts", process["nvml"], held[int(pid)])
    else:
        same("the demo, which nvidia-smi does not list", process["nvml"], None)
    stats = [line for line in lines(path) if line["type"] == "step"][-1]["stats"]
    for figure in ("requested", "allocated", "reserved", "cached", "free_total", "largest_free"):
        same(f"the demo's own {figure}, in bytes", process["allocator"][figure], stats[figure])
    sys.exit(f"different: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    {"demo": demo, "dashboard": dashboard}[sys.argv[1]](*sys.argv[2:])
