"""What the programs of c_abi.py ask the library, and what must be true of it."""

import json
import os
import pickle
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../demo/python"))


def torch_on(folder, seed):
    """PyTorch, always computing the same, and the library of the folder that it is on; without a folder on its own allocator."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    library = None
    if folder:
        import torch_pluggable

        library = torch_pluggable.install(f"{folder}/libgpumem_alloc.so")
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    return torch, library


def torch_peaks(torch):
    """The same of PyTorch's own allocator."""
    figures = torch.cuda.memory_stats()
    return {"reserved": figures["reserved_bytes.all.peak"], "requested": figures["requested_bytes.all.peak"]}


def peaks(library, device=0):
    import gpumem

    figures = gpumem.stats(library, device)
    return {"reserved": figures.all.reserved_bytes.peak, "requested": figures.all.requested_bytes.peak}


def dashboard(library, folder, device=0):
    """What gpumem-tui says of this very process, which uses one GPU, is what the library says."""
    import gpumem

    report = json.loads(subprocess.run([f"{folder}/gpumem-tui", "--json"], capture_output=True, check=True).stdout)
    row = next(row for row in report["processes"] if row["pid"] == os.getpid())
    figures = gpumem.stats(library, device).all
    assert row["state"] == "publishing" and row["allocator"]["allocated"] == figures.allocated_bytes.current, row
    return row["allocator"]


def told(library, folder):
    """What the dashboard says, and how much was refused that is not memory."""
    import gpumem

    refused = library.gpumem_error_count() - gpumem.stats(library).num_ooms
    return {"dashboard": dashboard(library, folder), "errors": refused}


def adds_up(library, device=0):
    """The segments of a snapshot are what is reserved."""
    import gpumem

    with tempfile.TemporaryDirectory() as folder:
        gpumem.snapshot(library, f"{folder}/state.pickle", device)
        with open(f"{folder}/state.pickle", "rb") as file:
            segments = pickle.load(file)["segments"]
    reserved = gpumem.stats(library, device).all.reserved_bytes.current
    assert sum(segment["total_size"] for segment in segments) == reserved, (segments, reserved)
