"""Publishes the memory of PyTorch's own CUDA allocator, for `gpumem-tui` to show, or replaces that allocator by gpumem's.

    import gpumem
    gpumem.publish()

A daemon thread reads PyTorch's figures once a second and hands them to a small process, which publishes them. Nothing native runs in
this process, and no function of this module raises into the program, opens a CUDA context or waits for the GPU.

    torch.cuda.memory.change_current_allocator(gpumem.allocator)

has PyTorch use gpumem's allocator, which publishes by itself; the class Allocator has the same for CuPy and RMM. The library is loaded
when the object is first used, which raises RuntimeError if there is none.

Environment: GPUMEM_INTERVAL is the time between two readings in seconds (0.1 to 60, 1 if not set), GPUMEM_JOB is the name of the job,
GPUMEM_HISTORY is what publish() takes as `history`, GPUMEM_TUI is the path of the program `gpumem-tui`, GPUMEM_LIBRARY that of
libgpumem_alloc.so, and GPUMEM_DEBUG=1 lets the publisher process write to stderr.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Iterator, Optional

from . import _allocator, _publisher
from ._allocator import Allocator

__all__ = ["Allocator", "allocator", "mark", "publish", "step", "stop", "tag"]

# That of `gpumem-tui run`, if it has loaded this package under its name, too.
allocator: Allocator = getattr(sys.modules.get(f"{_publisher.RUN_NAME}._allocator"), "allocator", _allocator.allocator)


def publish(history: Optional[int] = None) -> None:
    """Starts to publish once torch has initialised CUDA. It may be called at any time, and more than once.

    `history` has torch record that many operations (100 to 10,000) with the Python line of each allocation, unless the program records a
    history itself. Then the dashboard shows the line or the tag of each block. Recording takes about 2 µs for an allocation, and torch's
    compiler, which reads the lines, is imported at once: that takes some seconds.

    Without torch, with a torch that was not built for CUDA, or with gpumem's allocator, which publishes by itself, it says so on stderr,
    once, and does nothing.
    """
    _publisher.chosen().start(quiet=False, history=history)


def stop() -> None:
    """Ends publishing. The dashboard shows the process as ended. publish() starts again."""
    _publisher.chosen().stop()


def mark(name: str) -> None:
    """Marks the begin of a phase, which lasts until the next mark. Names are cut after 120 characters."""
    _publisher.chosen().mark(name)


def step(number: Optional[int] = None) -> None:
    """Marks the begin of a step as "step N", and ends the one before for allocator.leak_report(). Without a number it counts from 1."""
    _publisher.chosen().step(number)


@contextlib.contextmanager
def tag(name: str) -> Iterator[None]:
    """Marks a phase of the program: its begin, and at its end the begin of what is around it ("other" outside of all tags).

    The mark is for the whole process. Blocks that the thread takes from gpumem's allocator within get the tag; those of PyTorch's own
    get it if a history is recorded (`publish(history=10_000)`), from whatever thread.
    """
    publisher = _publisher.chosen()
    publisher.enter(name)
    pushed = allocator._push(name)
    try:
        yield
    finally:
        if pushed:
            allocator._pop()
        publisher.leave()
