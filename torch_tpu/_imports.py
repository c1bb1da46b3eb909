"""Changes to modules that are made when they are imported, and only then."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable


class _Loader(importlib.abc.Loader):
    """Another loader, and the calls behind it."""

    def __init__(self, loader: importlib.abc.Loader, finder: "_Finder"):
        self.loader, self.finder = loader, finder

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__spec__.loader = module.__loader__ = self.loader  # nothing is left of us in the module
        self.loader.exec_module(module)
        for then in self.finder.waiting.pop(module.__name__, ()):
            then(module)

    def __getattr__(self, name: str):
        return getattr(self.loader, name)  # get_source and the like


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that somebody waits for, through the finders behind this one.

    Whoever only asks where a module is (``importlib.util.find_spec``) gets here too, so the calls wait for the import.
    """

    def __init__(self):
        self.waiting: dict[str, list[Callable]] = {}

    def find_spec(self, name, path, target=None):
        if name not in self.waiting:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


_finder = _Finder()


def when_imported(name: str, then: Callable) -> None:
    """Call ``then(module)`` once, when the module ``name`` has been imported: at once if it is already."""
    if name in sys.modules:
        then(sys.modules[name])
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(then)
