"""Runs first in every Python that `gpumem-tui run` starts: publishes the process once it has imported torch and initialised CUDA, or,
with --allocator, puts torch and cupy on gpumem's allocator once they are imported.

This folder is on PYTHONPATH. Python runs one sitecustomize, so this one runs the next on the path, which it hides.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(HERE), "gpumem")
# The package is not imported as `gpumem`: that may be the name of a module of the program.
NAME = "_gpumem_run"
ALLOCATOR = os.environ.get("GPUMEM_RUN") == "allocator"


def run_hidden():
    """Runs the next sitecustomize, under its name. Its exceptions are those that Python would show without this one."""
    path = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    found = (finder.find_spec("sitecustomize", path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    hidden = next(filter(None, found), None)
    if hidden and hidden.loader and hidden.origin not in ran:
        from importlib.util import module_from_spec

        ran.add(hidden.origin)
        sys.modules["sitecustomize"] = module_from_spec(hidden)
        hidden.loader.exec_module(sys.modules["sitecustomize"])


def watch():
    """Has start() called after `import torch`, or serve() after that and `import cupy`."""
    hook = load(NAME + "_hook", os.path.join(PACKAGE, "_hook.py"))
    if not ALLOCATOR:
        hook.install(start)
        return
    for module in ("torch", "cupy"):
        hook.install(lambda module=module: part("_allocator").serve(module), module)


def start():
    """Publishes. Nothing that fails here may reach the program."""
    try:
        part("_publisher").chosen().start(quiet=True)
    except Exception as error:
        complain(error)


def part(module):
    """Returns a module of the package: of the program's, if it has imported that already."""
    for name in (NAME, "gpumem"):
        if name + "." + module in sys.modules:
            return sys.modules[name + "." + module]
    load(NAME, os.path.join(PACKAGE, "__init__.py"), [PACKAGE])
    return part(module)


def complain(error):
    if sys.stderr is not None:
        what = "use the allocator" if ALLOCATOR else "publish"
        sys.stderr.write(f"gpumem: cannot {what}: {error}\n")


def load(name, file, folders=None):
    """Imports a module or a package from its file, as this one was. importlib.util does that, too, but importing it takes a millisecond."""
    spec = type(__spec__)(name, type(__spec__.loader)(name, file), origin=file, is_package=folders is not None)
    spec.has_location = True
    module = sys.modules[name] = type(sys)(name)
    module.__spec__, module.__loader__, module.__file__, module.__package__ = spec, spec.loader, file, spec.parent
    if folders is not None:
        spec.submodule_search_locations = module.__path__ = folders
    spec.loader.exec_module(module)
    return module


# A hidden sitecustomize may run this one again, to which it is the next on the path.
ran = getattr(sys, "_gpumem_run", None)
if ran is None:
    ran = sys._gpumem_run = set()
    try:
        watch()
    except Exception as error:
        complain(error)
run_hidden()
