#!/usr/bin/env python3
"""Records what a PyTorch program asks its allocator for, as a trace for `gpumem-tui replay`.

    python3 tests/gpu/record.py PROGRAM FILE.csv     one of record_programs.py, on the current GPU
    python3 tests/gpu/record.py --list               what there is

Both need torch.

To record a program of your own call `begin()` before it and `save(FILE)` behind it. Each program here takes less than 10 GiB and
about half a minute. Sizes are as asked for, streams are numbered from 0, the default one, in the order they come; what is freed
before the recording began is left out. demo/tests/data/torch211_*.csv.gz were made by this, with PyTorch 2.11 on an H100.
"""

import sys

# Allocations and frees that are kept. PyTorch drops the oldest beyond that.
MOST_EVENTS = 3_000_000


def begin():
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=MOST_EVENTS)


def save(path):
    """Writes the trace. Its operations and the peak of the bytes asked for."""
    import torch

    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)
    if len(events) >= MOST_EVENTS:
        sys.exit(f"more than {MOST_EVENTS} events: the first ones are lost")
    ids, sizes, streams = {}, {}, {0: 0}
    operations = held = peak = 0
    with open(path, "w") as file:
        file.write("op,id,bytes,stream\n")
        for event in events:
            if event["action"] == "alloc":
                number = ids[event["addr"]] = len(sizes)
                size = sizes[number] = event["size"]
                stream = streams.setdefault(event["stream"], len(streams))
                file.write(f"a,{number},{size},{stream}\n")
                held += size
            elif event["action"] == "free_requested" and event["addr"] in ids:
                number = ids.pop(event["addr"])
                file.write(f"f,{number}\n")
                held -= sizes[number]
            else:
                continue
            operations += 1
            peak = max(peak, held)
    return operations, peak


def main():
    import record_programs

    programs = record_programs.PROGRAMS
    if sys.argv[1:] == ["--list"]:
        for name, program in programs.items():
            print(f"{name:10}{program.__doc__}")
        return
    if len(sys.argv) != 3 or sys.argv[1] not in programs:
        sys.exit(__doc__)
    name, path = sys.argv[1:]
    begin()
    programs[name]()
    operations, peak = save(path)
    print(f"{name}: {operations} operations, {peak / 2**20:.0f} MiB at the peak")


if __name__ == "__main__":
    main()
