#!/usr/bin/env python3
"""A PyTorch program leaks, runs out of memory and is killed, and what the dashboard says of it. Needs PyTorch, an NVIDIA GPU and tmux.

    story.py PROGRAM PACKAGE        PROGRAM is gpumem-tui, PACKAGE the folder with the package `gpumem`

Takes five minutes, and 30 GiB of the GPU for a moment. Prints PASS or FAIL for each check; SCREENS=FOLDER keeps the screens. Exit code 1 if a
check failed.
"""

import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pytorch

PROGRAM = """
import os, sys, time, torch
torch.cuda.set_per_process_memory_fraction(30 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
model = torch.nn.Linear(2048, 2048, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
held, begin = [], time.monotonic()
while time.monotonic() - begin < float(sys.argv[1]):
    optimizer.zero_grad()
    loss = model(torch.randn(4096, 2048, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    held.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    time.sleep(0.25)
del held[::2]
for _ in range(3):
    try:
        torch.empty(29 << 30, dtype=torch.uint8, device="cuda"), torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        print("out of memory", flush=True)
time.sleep(3600)
"""
FAILED = []


def check(what, holds, why=""):
    print("PASS" if holds else "FAIL", what, "" if holds else why[-3000:], flush=True)
    if not holds:
        FAILED.append(what)


def wait_for(watching, name, texts, seconds):
    """Waits until the screen has all texts; returns the seconds that took, or None, and the screen."""
    begin = time.monotonic()
    while True:
        screen = watching.screen(name)
        if all(text in screen for text in texts):
            return time.monotonic() - begin, screen
        if time.monotonic() - begin > seconds:
            return None, screen
        time.sleep(0.2)


def main():
    program, package = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    watching = pytorch.Watching(program, package)
    script = watching.folder / "leak.py"
    script.write_text(PROGRAM)
    command = [program, "run", "--", sys.executable, script, "225"]
    process = subprocess.Popen(command, env=watching.environment, stdout=subprocess.PIPE, text=True)
    try:
        rows = watching.wait_for_rows()
        check("the program publishes", len(rows) == 1, str(watching.json()))
        pid = rows[0]["pid"]
        check("its name is that of the script", rows[0]["label"] == "leak.py", str(rows))
        watching.look("first")
        for what, text, seconds in [("rising", "has risen for", 130), ("confirmed", "a leak, or a cache without a limit", 170)]:
            took, screen = wait_for(watching, "first", [text], seconds)
            check(f"the leak is {what}, after {took or 0:.0f} s more", took is not None, screen)
        watching.screen("first", "leak")
        process.stdout.readline()
        took, screen = wait_for(watching, "first", ["OOM x"], 30)
        check(f"out of memory is on the screen, {took or 0:.1f} s after the program said so", took is not None, screen)
        watching.screen("first", "failed")
        watching.keys("first", "6")
        took, screen = wait_for(watching, "first", ["What helps, in order"], 10)
        check("Triage says what helps", took is not None, screen)
        watching.screen("first", "triage")
        time.sleep(10)
        os.kill(pid, 9)
        process.wait()
        subprocess.run(["tmux", "kill-session", "-t", "first"], capture_output=True)
        time.sleep(15)
        # Nobody has seen any of it.
        watching.look("late")
        took, screen = wait_for(watching, "late", ["died", "leak.py"], 20)
        check("a late dashboard lists the dead program", took is not None, screen)
        watching.screen("late", "late")
        watching.keys("late", "3", "-", "-", "-")
        took, screen = wait_for(watching, "late", ["died holding", "publishers only until"], 10)
        check("its Timeline has what was before, and the end", took is not None, screen)
        watching.screen("late", "timeline")
        watching.keys("late", "6", "t")
        took, screen = wait_for(watching, "late", ["3 Timeline", "out of memory: tried to allocate"], 10)
        check("t shows the moment of the failure", took is not None, screen)
        watching.screen("late", "moment")
    finally:
        process.kill()
        watching.end()
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
