"""Runs in a process that was attached to, with its globals PID, its number, FILES, the sources of the package, and FD, a connection to
the publisher.

It is called in the middle of whatever the program does, so it only starts a thread. That tells in a line whether it publishes: "yes", or
"no: " and the reason. When the publisher is gone it takes the modules of the package back and ends.
"""

import _thread
import posix
import sys

NAME = "_gpumem_attached"
# How long a thread of an earlier attach may take to end: it looks for its publisher some times a second.
PATIENCE_S = 2.0
SHORT_WAIT_S = 0.02


class Finder:
    """Finds the modules of the package, and loads them from their sources."""

    def __init__(self, loaded):
        self.loaded = loaded

    def find_spec(self, name, path=None, target=None):
        # Importing the type by its name would come here again.
        ModuleSpec = type(sys.__spec__)
        if name == NAME:
            return ModuleSpec(name, self, is_package=True)
        return ModuleSpec(name, self) if self.source(name) is not None else None

    def source(self, name):
        package, _, module = name.partition(".")
        return FILES.get(module + ".py") if package == NAME else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        self.loaded.append(module)
        # Nothing of the package itself is needed: its parts are.
        if module.__name__ != NAME:
            # Lines of the package are told from those of the program by their folder.
            module.__file__ = "/<gpumem>/" + module.__name__.split(".")[1] + ".py"
            exec(compile(self.source(module.__name__), module.__file__, "exec"), vars(module))


def modules(loaded):
    """Imports what is needed, adds all of it to `loaded`, and leaves no finder behind."""
    from importlib import import_module

    finder = Finder(loaded)
    sys.meta_path.insert(0, finder)
    try:
        return [import_module(NAME + "." + name) for name in ("_history", "_oom", "_pace", "_pipe", "_reader", "_torch")]
    finally:
        sys.meta_path.remove(finder)


def refusal(torch):
    """Returns why nothing can be published."""
    if torch is None or not hasattr(torch, "cuda"):
        return "it has not imported torch"
    if getattr(torch.version, "hip", None) or not torch.cuda.is_initialized():
        return "its torch has not initialised CUDA"
    if NAME in sys.modules:
        return "it is attached to already"
    for name in ("gpumem._publisher", "_gpumem_run._publisher"):
        reader = getattr(sys.modules.get(name), "_own", None)
        if reader is not None and reader.reader() is not None and reader.reader().pipe is not None:
            return "it publishes already"
    backend = getattr(torch.cuda.memory, "get_allocator_backend", None)
    if backend is not None and backend() == "pluggable":
        return "its torch uses another allocator than its own"
    return None


def wait_for_earlier():
    """Waits for the end of what a `detach` has told to end."""
    import time

    until = time.monotonic() + PATIENCE_S
    while NAME in sys.modules and time.monotonic() < until:
        time.sleep(SHORT_WAIT_S)


def run():
    import socket

    connection = socket.socket(fileno=FD)
    loaded = []
    try:
        torch = sys.modules.get("torch")
        try:
            wait_for_earlier()
            why = refusal(torch)
            parts = modules(loaded) if why is None else []
        except Exception as error:
            why = type(error).__name__ + ": " + str(error)[:200].replace("\n", " ")
        answer = "yes" if why is None else "no: " + why
        # Who attached may have gone. SIGPIPE would end a program that has the default action for it.
        connection.send((answer + "\n").encode(errors="replace"), socket.MSG_NOSIGNAL)
        if why is None:
            read(torch, connection, *parts)
    except Exception:
        # Nobody can be told, and the program has no use for a trace.
        pass
    finally:
        forget(loaded)
        connection.close()


def forget(loaded):
    """Takes the modules back. The package comes last: as long as it is there, nobody else loads any."""
    for module in reversed(loaded):
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]


def read(torch, connection, history, oom, pace, pipe, reader, _):
    import atexit
    from collections import deque

    seconds, _ = pace.interval(None)
    running = [reader.Reader(torch, lambda: pipe.Pipe(connection), seconds, history.History(0), deque())]
    # The observer cannot be removed again. It does nothing once nobody runs.
    oom.attach(torch, lambda: running[0] if running else None)
    end = running[0].stop
    atexit.register(end)
    try:
        running[0].run()
    except pipe.Gone:
        pass
    finally:
        running.clear()
        atexit.unregister(end)


# A process that is forked before the text was executed has it to execute, too.
if posix.getpid() == PID:
    _thread.start_new_thread(run, ())
