"""Calls a function once a module, torch unless another one is named, has been imported.

`gpumem-tui run` loads this file alone, so that a Python without that module pays for nothing else.
"""

import _thread
import sys

# Importing typing takes 10 ms, and __future__ takes 0.1 ms.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Set


class Finder:
    """The first of Python's module finders, until a module is imported. It finds that as the others do, and watches its loader."""

    def __init__(self, function: "Callable[[], None]", module: str) -> None:
        self._module = module
        self._functions: "List[Callable[[], None]]" = [function]
        # Threads that are looking for the module. Another finder may ask all finders, too: they would ask each other for ever.
        self._looking: "Set[int]" = set()

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Returns what the other finders find for the module, and None for any other one."""
        if name != self._module:
            return None
        thread = _thread.get_ident()
        if thread in self._looking:
            return None
        self._looking.add(thread)
        try:
            others = (f.find_spec(name, path, target) for f in list(sys.meta_path) if f is not self and hasattr(f, "find_spec"))
            spec = next((spec for spec in others if spec is not None), None)
        finally:
            self._looking.discard(thread)
        return self._watch(spec)

    def _watch(self, spec: "Any") -> "Any":
        loader: "Any" = getattr(spec, "loader", None)
        run = getattr(loader, "exec_module", None)
        if run is None:
            return spec

        def exec_module(module: "Any") -> None:
            # Two of us may watch one loader. The attribute is then that of the outer one.
            vars(loader).pop("exec_module", None)
            run(module)
            self._finish()

        try:
            loader.exec_module = exec_module
        except AttributeError:
            # A loader without attributes of its own. The module is imported, and nobody hears of it.
            pass
        return spec

    def _finish(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        functions, self._functions = self._functions, []
        for function in functions:
            function()


def install(function: "Callable[[], None]", module: str = "torch") -> None:
    """Calls `function` after a module was imported. That is at once if it is imported already. What it raises, the import raises."""
    if module in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, Finder(function, module))
