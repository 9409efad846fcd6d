"""What the programs of c_abi.py ask the library, and what must be true of it."""

import json
import os
import pickle
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/python"))


def allocator_at(library):
    """gpumem.allocator with this library."""
    os.environ["GPUMEM_LIBRARY"] = library
    import gpumem

    return gpumem.allocator


def allocator_in(folder):
    """The same with the library of a folder."""
    return allocator_at(f"{folder}/libgpumem_alloc.so")


def plugged(folder):
    """What goes before a command to have its Pythons on the library of a folder, which has gpumem-tui, too; nothing without a folder."""
    return [f"{folder}/gpumem-tui", "run", "--allocator", "--library", f"{folder}/libgpumem_alloc.so", "--"] if folder else []


def torch_on(folder, seed):
    """PyTorch, always computing the same, and gpumem.allocator with the folder's library, which it is on; without a folder on its own."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    allocator = None
    if folder:
        allocator = allocator_in(folder)
        torch.cuda.memory.change_current_allocator(allocator)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    return torch, allocator


def torch_peaks(torch):
    """The same of PyTorch's own allocator."""
    figures = torch.cuda.memory_stats()
    return {"reserved": figures["reserved_bytes.all.peak"], "requested": figures["requested_bytes.all.peak"]}


def peaks(allocator, device=0):
    figures = allocator.stats(device)
    return {"reserved": figures.all.reserved_bytes.peak, "requested": figures.all.requested_bytes.peak}


def dashboard(allocator, folder, device=0):
    """What gpumem-tui says of this very process, which uses one GPU, is what the library says."""
    report = json.loads(subprocess.run([f"{folder}/gpumem-tui", "--json"], capture_output=True, check=True).stdout)
    row = next(row for row in report["processes"] if row["pid"] == os.getpid())
    figures = allocator.stats(device).all
    assert row["state"] == "publishing" and row["allocator"]["allocated"] == figures.allocated_bytes.current, row
    return row["allocator"]


def told(allocator, folder):
    """What the dashboard says, and how much was refused that is not memory."""
    refused = allocator.library.gpumem_error_count() - allocator.stats().num_ooms
    return {"dashboard": dashboard(allocator, folder), "errors": refused}


def adds_up(allocator, device=0):
    """The segments of a snapshot are what is reserved."""
    with tempfile.TemporaryDirectory() as folder:
        allocator.snapshot(f"{folder}/state.pickle", device)
        with open(f"{folder}/state.pickle", "rb") as file:
            segments = pickle.load(file)["segments"]
    reserved = allocator.stats(device).all.reserved_bytes.current
    assert sum(segment["total_size"] for segment in segments) == reserved, (segments, reserved)
