#!/usr/bin/env python3
"""Runs `gpumem-tui bench hierarchy` on a GPU and compares it with published figures. Needs Python and nvidia-smi only.

    hierarchy.py PROGRAM [GPU]       measures, prints the table, checks the figures
    hierarchy.py PROGRAM [GPU] ends  also ends runs by signals at random moments, and checks that nothing is left

The figures are those of an H100 (gpu-benches, and Luo 2024 for shared memory): other cards of compute capability 9.0 with
an L2 cache of 50 MB are compared, too, and for the rest only what holds on every card is checked. Prints PASS or FAIL for
each check; exit code 1 if one failed. Nothing else may start or end on that GPU meanwhile.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import benches
from benches import ENVIRONMENT, check, is_as_before, used

# Level, unit, figure: to be met within 15 %. The figure of shared memory includes index arithmetic.
H100 = [
    ("l1", "cycles", 34.0),
    ("shared", "cycles", 29.0),
    ("l2-near", "ns", 151.0),
    ("l2-far", "ns", 271.0),
    ("device", "ns", 370.0),
]
TOLERANCE = 0.15


def command(program, gpu, *more):
    return [program, "bench", "hierarchy", "--device", gpu, *more]


def measure(program, gpu):
    with tempfile.TemporaryDirectory() as cache:
        return measure_with(program, gpu, pathlib.Path(cache))


def measure_with(program, gpu, cache):
    began = time.monotonic()
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command(program, gpu, "--json"), env=environment, capture_output=True, text=True)
    check("bench hierarchy ends well", done.returncode == 0, f"exit code {done.returncode} {done.stderr.strip()}")
    if done.returncode != 0:
        sys.exit(1)
    print(f"it took {time.monotonic() - began:.1f} s")
    report = json.loads(done.stdout)
    kept = list((cache / "gpumem").iterdir())
    same = len(kept) == 1 and json.loads(kept[0].read_text()) == report
    check("the report is kept, for its user only", same and kept[0].stat().st_mode & 0o777 == 0o600, kept)
    return report


def table(report):
    card = report["card"]
    print(f"{card['name']}, driver {card['driver']}, SM at {report['sm_mhz']:.0f} MHz, L2 {card['l2_bytes'] / 2**20:.0f} MiB")
    for level in report["levels"]:
        latency = level["latency"] or {}
        figures = [f"{latency[unit]:9.2f} {unit}" for unit in ("cycles", "ns") if unit in latency]
        if latency:
            figures.append(f"[{latency['least_ns']:.2f} {latency['most_ns']:.2f}] of {latency['bytes'] >> 10} KiB, {latency['load']}")
        figures += [f"{b['what']} {b['gb_per_s']:.1f} GB/s" for b in level["bandwidths"]]
        figures += [f"{b['per_cycle_and_sm']:.1f} B/cycle/SM" for b in level["bandwidths"] if b["per_cycle_and_sm"]]
        print(f"  {level['rung']:14}", *figures, level["note"])
        for other in level["other_latencies"]:
            print(f"  {'':14} {other['cycles']:9.2f} cycles {other['ns']:9.2f} ns by {other['load']}")
    for point in report["curve"]:
        print(f"  {point['bytes'] / 2**20:9.3f} MiB {point['ns']:8.2f} ns {point['cycles']:8.2f} cycles  {point['region']}")
    print("  spread", json.dumps(report["spread"]))


def compare(report):
    levels = {level["rung"]: level for level in report["levels"]}
    card = report["card"]
    if card["compute_capability"] == [9, 0] and 48 <= card["l2_bytes"] / 2**20 <= 52:
        for rung, unit, wanted in H100:
            latency = levels[rung]["other_latencies"][0] if rung == "shared" else levels[rung]["latency"]
            found = latency[unit]
            off = found / wanted - 1
            check(f"{rung} within 15 % of {wanted} {unit}", abs(off) <= TOLERANCE, f"{found:.1f} {unit}, {off:+.1%}")
    order = [levels[rung]["latency"]["ns"] for rung in ("l1", "l2-near", "device", "pinned-host")]
    check("each level is slower than the one above", order == sorted(order), order)
    for level in report["levels"]:
        if level["rung"] == "peer" and level["latency"]:
            found = level["latency"]["ns"]
            check(f"peer GPU {level['peer']} is slower than device memory", found > levels["device"]["latency"]["ns"], f"{found:.0f} ns")
    rates = {b["what"]: b["gb_per_s"] for b in levels["device"]["bandwidths"]}
    driver = rates.pop("driver copy")
    for what, rate in rates.items():
        check(f"{what} within 10 % of the driver's copy, or faster", rate >= 0.9 * driver, f"{rate:.0f} of {driver:.0f} GB/s")
    check("the first kernel is loaded and has run in less than 200 ms", report["load_ms"] < 200, f"{report['load_ms']:.1f} ms")


def main():
    program, gpu, to_end = benches.arguments(__doc__)
    before = used(gpu)
    report = measure(program, gpu)
    table(report)
    compare(report)
    is_as_before(gpu, before, "memory in use is as before")
    if to_end:
        benches.ends(command(program, gpu), gpu, before, 8)
    sys.exit(benches.failed)


main()
