"""What every Python does first on whose PYTHONPATH this folder is: its torch is on the library that GPUMEM_TORCH names.

torch_pluggable.py sets both for the script it is given, and whatever that starts has them, too: the processes of torchrun, accelerate or
deepspeed, those that are spawned, DataLoaders'. Nothing happens where torch is not imported. Another sitecustomize, which this one hides,
is run.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

HERE = os.path.dirname(os.path.abspath(__file__))


class BehindTorch:
    """Of Python's finders of modules the first: has torch, once it is imported, call install()."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "torch":
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not cls and hasattr(finder, "find_spec"))
        spec = next(filter(None, others), None)
        loader = getattr(spec, "loader", None)
        if hasattr(loader, "exec_module"):

            def exec_module(module):
                del loader.exec_module
                loader.exec_module(module)
                install()

            loader.exec_module = exec_module
        return spec


def install():
    sys.meta_path.remove(BehindTorch)
    import torch

    if not torch.backends.cuda.is_built():
        return
    sys.path.insert(0, os.path.dirname(HERE))
    try:
        import torch_pluggable

        torch_pluggable.install(os.environ["GPUMEM_TORCH"])
    finally:
        sys.path.remove(os.path.dirname(HERE))


if os.environ.get("GPUMEM_TORCH"):
    sys.meta_path.insert(0, BehindTorch)
hidden = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry) != HERE])
if hidden and hidden.loader:
    hidden.loader.exec_module(module_from_spec(hidden))
