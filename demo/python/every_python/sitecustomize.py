"""Runs first in every Python with this folder on its PYTHONPATH, and puts torch and cupy on the library that GPUMEM_PYTHON names.

run.py sets both for its script. Processes that the script starts inherit them: those of torchrun, accelerate, deepspeed, spawn and
DataLoader. Nothing happens unless torch or cupy is imported. Another sitecustomize, which this one hides, is run.
"""

import importlib
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.environ.get("GPUMEM_PYTHON")
# Functions that put a module on the library once it is imported.
INSTALLERS = {"torch": "torch_pluggable", "cupy": "cupy_cfunction"}


class Behind:
    """The first of Python's module finders. Puts a module of INSTALLERS on the library once it is imported."""

    of_gpumem = True

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in INSTALLERS:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not cls and hasattr(finder, "find_spec"))
        spec = next(filter(None, others), None)
        loader = getattr(spec, "loader", None)
        if hasattr(loader, "exec_module"):

            def exec_module(module):
                del loader.exec_module
                loader.exec_module(module)
                install(name)

            loader.exec_module = exec_module
        return spec


def install(name):
    # It is called more than once if another finder asks all finders as well.
    if name not in INSTALLERS:
        return
    built_for_cuda = name != "torch" or sys.modules[name].backends.cuda.is_built()
    if built_for_cuda:
        sys.path.insert(0, os.path.dirname(HERE))
        try:
            importlib.import_module(INSTALLERS[name]).install(LIBRARY)
        finally:
            sys.path.remove(os.path.dirname(HERE))
    del INSTALLERS[name]


# A hidden sitecustomize may import this one again.
if LIBRARY and not any(getattr(finder, "of_gpumem", False) for finder in sys.meta_path):
    sys.meta_path.insert(0, Behind)
    # Modules that a .pth file has imported before.
    for imported in set(INSTALLERS) & set(sys.modules):
        install(imported)
hidden = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry) != HERE])
if hidden and hidden.loader:
    sys.modules["sitecustomize"] = module_from_spec(hidden)
    hidden.loader.exec_module(sys.modules["sitecustomize"])
