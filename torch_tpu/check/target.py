"""What ``ttpu check`` is asked to look at: a script, a module that runs, or a function."""

import importlib
import importlib.util
import pathlib
import runpy
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch


class TargetError(Exception):
    """What was named does not exist, or is not what can be checked."""


class Program:
    """A script or a module that is run as it would be by Python.

    Attributes
    ----------
    function
        None: a program has no function that could be called once more.
    """

    function = None

    def __init__(self, name: str, arguments: list[str], is_module: bool) -> None:
        self.name, self.arguments, self.is_module = name, arguments, is_module

    def run(self, steps: int, after_call: Callable[[], None]) -> None:
        """Run it to its end."""
        sys.argv = [self.name, *self.arguments]
        if self.is_module:
            sys.path.insert(0, "")
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(pathlib.Path(self.name).resolve().parent))
            runpy.run_path(str(pathlib.Path(self.name).resolve()), run_name="__main__")


def _load_file(path: pathlib.Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path.resolve())
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    specification.loader.exec_module(module)
    return module


def _find(place: str, module: Any = None) -> tuple[Any, Any]:
    """The module and what is meant by ``file.py:name``, ``module:name``, or ``name`` in a given module."""
    source, _, name = place.rpartition(":")
    if source:
        path = pathlib.Path(source)
        if path.suffix == ".py":
            if not path.is_file():
                raise TargetError(f"{path} does not exist")
            module = _load_file(path)
        else:
            sys.path.insert(0, "")
            try:
                module = importlib.import_module(source)
            except ModuleNotFoundError as error:
                raise TargetError(f"{place}: {error}") from error
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TargetError(f"{getattr(module, '__file__', source)} has no {name}")
        found = getattr(found, part)
    return module, found


def _as_arguments(made: Any) -> tuple[tuple, dict]:
    if isinstance(made, Mapping):
        return (), dict(made)
    return (tuple(made), {}) if isinstance(made, tuple | list) else ((made,), {})


class Function:
    """A function or module with its arguments, called once a step; a function that takes and makes nothing, once."""

    def __init__(self, name: str, inputs: str | None) -> None:
        self.name, self.inputs = name, inputs
        self.args, self.kwargs = (), {}
        self.function, self.result = None, None
        self.calls_once = False

    def _resolve(self) -> None:
        """Find out what is to be called: what is named, or what that makes."""
        sys.argv = [self.name.rpartition(":")[0]]
        module, found = _find(self.name)
        if self.inputs is not None:
            maker = _find(self.inputs, module)[1]
            self.args, self.kwargs = _as_arguments(maker() if callable(maker) else maker)
        if isinstance(found, type) and issubclass(found, torch.nn.Module):
            found = found()
        if not callable(found):
            raise TargetError(f"{found!r} cannot be called")
        if isinstance(found, torch.nn.Module) or self.args or self.kwargs:
            self.function = found
            return
        made = found()
        if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
            self.function, (self.args, self.kwargs) = made[0], _as_arguments(made[1])
        elif isinstance(made, Mapping) and callable(made.get("target")):
            self.function, self.args = made["target"], tuple(made.get("args", ()))
            self.kwargs = dict(made.get("kwargs", {}))
        elif isinstance(made, torch.nn.Module):
            self.function = made
        else:
            self.calls_once, self.result = True, made

    def run(self, steps: int, after_call: Callable[[], None]) -> None:
        """Call it, with its arguments on tpu."""
        self._resolve()
        if self.calls_once:
            return
        from torch_tpu.check.parity import moved

        if isinstance(self.function, torch.nn.Module):
            self.function.to("tpu")
        args, kwargs = moved((self.args, self.kwargs), "tpu")
        for _ in range(max(steps, 1)):
            with torch.set_grad_enabled(not isinstance(self.function, torch.nn.Module)):
                self.result = self.function(*args, **kwargs)
            after_call()


def find(name: str, arguments: list[str], inputs: str | None) -> Program | Function:
    """What is meant: ``script.py``, ``file.py:function``, ``package.module:function`` or ``package.module``.

    Raises
    ------
    TargetError
    """
    if ":" in name:
        if arguments:
            raise TargetError(f"{name} is a function, which takes no arguments of the command line: {arguments}")
        return Function(name, inputs)
    if inputs is not None:
        raise TargetError("--input gives the arguments of a function: name one, as file.py:function")
    path = pathlib.Path(name)
    if path.is_file():
        return Program(name, arguments, is_module=False)
    if path.suffix == ".py" or "/" in name:
        raise TargetError(f"{name} does not exist")
    try:
        known = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        known = None
    if known is None:
        raise TargetError(f"{name} is neither a file nor a module that could be imported")
    return Program(name, arguments, is_module=True)
