#!/usr/bin/env python3
"""Runs `gpumem-tui bench claims` on a GPU and checks what every run promises. Needs Python and nvidia-smi only.

    claims.py PROGRAM [GPU]       checks all claims, prints the table and the figures
    claims.py PROGRAM [GPU] ends  also ends runs by signals at random moments, and checks that nothing is left

Verdicts are not compared with anything: they are what this is for. Every row has a figure or the reason why it has none,
all of it takes less than 90 s, and the memory in use is the same before and after. Prints PASS or FAIL for each check;
exit code 1 if one failed. Nothing else may start or end on that GPU meanwhile.
"""

import json
import subprocess
import sys
import time

import benches
from benches import ENVIRONMENT, check, is_as_before, used

# All claims, in seconds.
LONGEST = 90
# Rows that need no GPU.
SIMULATED = {"max-split", "expandable"}


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


def main():
    program, gpu, to_end = benches.arguments(__doc__)
    before = used(gpu)
    report, took, most = measure(program, gpu)
    table(report)
    print(f"  at most {most - before} MiB more in use, the context included")
    rows(report)
    check(f"all of it takes less than {LONGEST} s", took < LONGEST, f"{took:.1f} s")
    is_as_before(gpu, before, "memory in use is as before")
    one = subprocess.run(command(program, gpu, "--only", "coalescing"), env=ENVIRONMENT, capture_output=True, text=True)
    check("one claim explains itself", one.returncode == 0 and "measured" in one.stdout, one.returncode)
    print(one.stdout)
    if to_end:
        benches.ends(command(program, gpu), gpu, before, max(1, took - 2))
    sys.exit(benches.failed)


main()
