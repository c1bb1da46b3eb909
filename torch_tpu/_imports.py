"""Changes to modules that are made when they are imported, and only then."""

import importlib.abc
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec


class _WatchedSpec(ModuleSpec):
    """The specification of a module that somebody waits for.

    Python's import notes in it whether the module is being made: the end of that is the one moment at which the module
    is whole and nobody has used it, and comes too where the import began before there was anybody to wait.
    """

    @property
    def _initializing(self) -> bool:
        return self.__dict__["_initializing"]

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if not value and self.name in sys.modules:  # it is not there where its import failed
            self.__class__ = ModuleSpec
            for then in _finder.waiting.pop(self.name, ()):
                then(sys.modules[self.name])


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that somebody waits for, through the finders behind this one, and has them watched.

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
                spec.__class__ = _WatchedSpec
                return spec
        return None


_finder = _Finder()


def when_imported(name: str, then: Callable) -> None:
    """Call ``then(module)`` once, when the import of the module ``name`` has ended: at once if it has already."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if name in sys.modules and not getattr(spec, "_initializing", False):
        then(sys.modules[name])
        return
    if spec is not None:
        spec.__class__ = _WatchedSpec
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(then)
