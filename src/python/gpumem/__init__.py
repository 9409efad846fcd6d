"""Publishes the memory of PyTorch's own CUDA allocator, for `gpumem-tui` to show.

    import gpumem
    gpumem.publish()

A daemon thread reads PyTorch's figures once a second and hands them to a small process, which publishes them. Nothing native runs in
this process, and no function of this package raises into the program, opens a CUDA context or waits for the GPU.

Environment: GPUMEM_INTERVAL is the time between two readings in seconds (0.1 to 60, 1 if not set), GPUMEM_JOB is the name of the job,
GPUMEM_HISTORY is what publish() takes as `history`, GPUMEM_TUI is the path of the program `gpumem-tui`, and GPUMEM_DEBUG=1 lets the
publisher process write to stderr.
"""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional

from . import _publisher

__all__ = ["mark", "publish", "step", "stop", "tag"]


def publish(history: Optional[int] = None) -> None:
    """Starts to publish once torch has initialised CUDA. It may be called at any time, and more than once.

    `history` has torch record that many operations (100 to 10,000) with the Python line of each allocation, unless the program records a
    history itself. Then the dashboard shows the line or the tag of each block. Recording takes about 2 µs for an allocation, and the
    first block map imports torch's compiler, which takes some seconds of a thread.

    Without torch, or with a torch that was not built for CUDA, it says so on stderr, once, and does nothing.
    """
    _publisher.chosen().start(quiet=False, history=history)


def stop() -> None:
    """Ends publishing. The dashboard shows the process as ended. publish() starts again."""
    _publisher.chosen().stop()


def mark(name: str) -> None:
    """Marks the begin of a phase, which lasts until the next mark. Names are cut after 120 characters."""
    _publisher.chosen().mark(name)


def step(number: Optional[int] = None) -> None:
    """Marks the begin of a step as "step N". Without a number it counts from 1."""
    _publisher.chosen().step(number)


@contextlib.contextmanager
def tag(name: str) -> Iterator[None]:
    """Marks a phase of the program: its begin, and at its end the begin of what is around it ("other" outside of all tags).

    The mark is for the whole process. Blocks that are allocated within get the tag if a history is recorded (`publish(history=10_000)`).
    """
    publisher = _publisher.chosen()
    publisher.enter(name)
    try:
        yield
    finally:
        publisher.leave()
