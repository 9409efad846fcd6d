"""What the checks of `gpumem-tui bench NAME` share. Needs Python and nvidia-smi only."""

import os
import random
import signal
import subprocess
import sys
import time

# From a finished process to memory that is free again, in seconds.
GRACE = 5
# The compiled kernels of an earlier run must not help.
ENVIRONMENT = {**os.environ, "CUDA_CACHE_DISABLE": "1"}

failed = False


def check(what, passed, found):
    """Prints PASS or FAIL."""
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


def is_as_before(gpu, before, what):
    """Checks that as much is in use as before."""
    now = settles(gpu, before)
    check(what, now == before, f"{now} MiB in use, {before} before")


def ends(command, gpu, before, longest):
    """Ends runs of a command by signals, each within so many seconds. All but SIGKILL have to work within a second."""
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL] * 4:
        child = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = random.uniform(0.1, longest)
        time.sleep(after)
        child.send_signal(number)
        sent = time.monotonic()
        code = child.wait()
        took = time.monotonic() - sent
        # A context that is being made or taken down cannot be interrupted, and takes most of this time.
        expected = code in (-number, 128 + number)
        check(f"{number.name} after {after:.1f} s", expected and took < 1.5, f"exit code {code} after {took:.2f} s")
        is_as_before(gpu, before, f"all memory is free after {number.name}")
    child = subprocess.Popen([*command, "--json", "--steer"], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    time.sleep(3)
    child.stdin.close()
    check("the end of stdin ends a steered run", child.wait(timeout=5) == 0, child.returncode)
    is_as_before(gpu, before, "all memory is free")


def arguments(doc):
    """Returns the program, the GPU and whether to end runs, too."""
    if len(sys.argv) < 2:
        sys.exit(doc)
    return sys.argv[1], next(iter(sys.argv[2:]), "0"), "ends" in sys.argv[3:]
