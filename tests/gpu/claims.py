#!/usr/bin/env python3
"""Runs `gpumem-tui bench claims` on a GPU and checks what every run promises. Needs Python and nvidia-smi only.

    claims.py PROGRAM [GPU]       checks all claims, prints the table and the figures
    claims.py PROGRAM [GPU] ends  also ends runs by signals at random moments, and checks that nothing is left

Verdicts are not compared with anything: they are what this is for. Every row has a figure or the reason why it has none,
all of it takes less than 90 s, and the memory in use is the same before and after. Prints PASS or FAIL for each check;
exit code 1 if one failed. Nothing else may start or end on that GPU meanwhile.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

# All claims, in seconds.
LONGEST = 90
# From a finished process to memory that is free again, in seconds.
GRACE = 5
# Rows that need no GPU.
SIMULATED = {"max-split", "expandable"}
# The compiled kernels of an earlier run must not help.
ENVIRONMENT = {**os.environ, "CUDA_CACHE_DISABLE": "1"}

failed = False


def check(what, passed, found):
    global failed
    failed = failed or not passed
    print(f"{'PASS' if passed else 'FAIL'} {what}: {found}", flush=True)


def used(gpu):
    """Returns the memory in use on the GPU, in MiB."""
    query = ["nvidia-smi", "-i", gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, check=True, capture_output=True, text=True).stdout)


def settles(gpu, before):
    """Waits until the GPU has as much in use as before, and returns the last figure."""
    end = time.monotonic() + GRACE
    while (now := used(gpu)) != before and time.monotonic() < end:
        time.sleep(0.1)
    return now


def command(program, gpu, *more):
    return [program, "bench", "claims", "--device", gpu, *more]


def measure(program, gpu):
    """Runs all claims, and returns the report, the time it took in seconds and the most memory in use meanwhile in MiB."""
    began = time.monotonic()
    child = subprocess.Popen(
        command(program, gpu, "--json"), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    most = 0
    while child.poll() is None:
        most = max(most, used(gpu))
        time.sleep(0.05)
    out, err = child.communicate()
    took = time.monotonic() - began
    check("bench claims ends well", child.returncode == 0, f"exit code {child.returncode} {err.strip()}")
    if child.returncode != 0:
        sys.exit(1)
    return json.loads(out), took, most


def table(report):
    card = report["card"]
    print(f"{card['name']}, driver {card['driver']}, {report['duration_ms'] / 1e3:.1f} s")
    for row in report["rows"]:
        verdict = row["verdict"]
        print(f"  {row['name']:17} {row['short']:24} {verdict['is']}: {verdict.get('why', '')}")
        for figure in row["figures"]:
            spread = f"[{figure['least']:.4g} {figure['most']:.4g}] quartiles {figure['quartiles'][0]:.4g} {figure['quartiles'][1]:.4g}"
            print(f"      {figure['what']:52} {figure['median']:10.4g} {figure['unit']:7} {spread} of {figure['samples']}")


def rows(report):
    for row in report["rows"]:
        verdict = row["verdict"]
        if verdict["is"] == "not-measured":
            check(f"{row['name']} says why there is no verdict", bool(verdict["why"]), verdict["why"])
        else:
            sound = row["figures"] and all(f["samples"] == 1 or f["samples"] >= 5 for f in row["figures"])
            check(f"{row['name']} has figures", bool(sound), row["short"])
        place = "simulated" if row["name"] in SIMULATED else "gpu"
        check(f"{row['name']} says where", row["place"] == place, row["place"])


def ends(program, gpu, before, took):
    """Ends runs, which take so long by themselves, by signals. All but SIGKILL have to work within a second."""
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL] * 4:
        child = subprocess.Popen(command(program, gpu), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = random.uniform(0.1, max(1, took - 2))
        time.sleep(after)
        child.send_signal(number)
        sent = time.monotonic()
        code = child.wait()
        took = time.monotonic() - sent
        # A context that is being made or taken down cannot be interrupted, and takes most of this time.
        expected = code in (-number, 128 + number)
        check(f"{number.name} after {after:.1f} s", expected and took < 1.5, f"exit code {code} after {took:.2f} s")
        now = settles(gpu, before)
        check(f"all memory is free after {number.name}", now == before, f"{now} MiB in use, {before} before")
    child = subprocess.Popen(
        command(program, gpu, "--json", "--steer"), env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    time.sleep(3)
    child.stdin.close()
    check("the end of stdin ends a steered run", child.wait(timeout=5) == 0, child.returncode)
    now = settles(gpu, before)
    check("all memory is free", now == before, f"{now} MiB in use, {before} before")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, gpu = sys.argv[1], next(iter(sys.argv[2:]), "0")
    before = used(gpu)
    report, took, most = measure(program, gpu)
    now = settles(gpu, before)
    table(report)
    print(f"  at most {most - before} MiB more in use, the context included")
    rows(report)
    check(f"all of it takes less than {LONGEST} s", took < LONGEST, f"{took:.1f} s")
    check("memory in use is as before", now == before, f"{now} MiB, {before} before")
    one = subprocess.run(command(program, gpu, "--only", "coalescing"), env=ENVIRONMENT, capture_output=True, text=True)
    check("one claim explains itself", one.returncode == 0 and "measured" in one.stdout, one.returncode)
    print(one.stdout)
    if "ends" in sys.argv[3:]:
        ends(program, gpu, before, took)
    sys.exit(failed)


main()
