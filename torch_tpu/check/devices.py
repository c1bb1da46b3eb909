"""Runs programs that are written for cuda or for the CPU on tpu, within the process that checks them.

``cuda=tpu``: a mode for functions of tensors takes the device tpu wherever a call names cuda, and what ``torch.cuda``
has under the same name as ``torch.tpu`` is that; process groups over NCCL are over tpu_dist. ``cpu=tpu``: a program
that has put nothing on a device by the time it calls its first module with parameters gets this module moved to tpu,
and from then on CPU tensors follow the tensors on tpu that they meet; the lines at which they do are those that need a
``.to(device)``.

Nothing of this is done in any other process, nor at import.
"""

import contextlib
import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

import torch
from torch_tpu.check.places import Place, find_places
from torch_tpu.distributed import NAME

_CUDA_CAPABILITY = (8, 0)  # what programs ask for before they use bfloat16: the first generation that has it


def _as_tpu(device: Any) -> Any:
    """The device that stands for one of CUDA's; anything else as it is."""
    if isinstance(device, str) and (device == "cuda" or device.startswith("cuda:")):
        return device.replace("cuda", "tpu", 1)
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device("tpu", device.index) if device.index is not None else torch.device("tpu")
    return device


def _is_cuda_name(value: Any) -> bool:
    return _as_tpu(value) is not value


class CudaMode(TorchFunctionMode):
    """Takes tpu wherever a function of PyTorch is told cuda."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        if func is torch.Tensor.cuda:
            return _tensor_cuda(*args, **kwargs)
        if func == torch.Tensor.is_cuda.__get__:
            return args[0].device.type == "tpu"
        if any(map(_is_cuda_name, args)):
            args = tuple(map(_as_tpu, args))
        if kwargs and any(map(_is_cuda_name, kwargs.values())):
            kwargs = {name: _as_tpu(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _tensor_cuda(tensor, device=None, non_blocking=False, memory_format=torch.preserve_format):
    index = device if device is None or isinstance(device, int) else torch.device(device).index
    target = torch.device("tpu") if index is None else torch.device("tpu", index)
    return tensor.to(target, non_blocking=non_blocking, memory_format=memory_format)


@contextlib.contextmanager
def _attributes(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Within the block, attributes of modules and classes have other values."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _with_device(function: Callable, name: str, position: int, default: Any = None) -> Callable:
    """A function whose argument of that name and position may be a device of CUDA's, as its default may."""

    @functools.wraps(function)
    def mapped(*args, **kwargs):
        if name in kwargs:
            kwargs[name] = _as_tpu(kwargs[name])
        elif len(args) > position:
            args = (*args[:position], _as_tpu(args[position]), *args[position + 1 :])
        elif default is not None:
            kwargs[name] = _as_tpu(default)
        return function(*args, **kwargs)

    return mapped


def _load(function: Callable) -> Callable:
    """``torch.load``, which puts on tpu what was saved on, or is wanted on, CUDA."""

    def place(storage, location):
        return torch.serialization.default_restore_location(storage, _as_tpu(location))

    @functools.wraps(function)
    def load(f, map_location=None, *args, **kwargs):
        if isinstance(map_location, dict):
            map_location = {source: _as_tpu(target) for source, target in map_location.items()}
        elif not callable(map_location) and map_location is not None:
            map_location = _as_tpu(map_location)
        return function(f, place if map_location is None else map_location, *args, **kwargs)

    return load


def _with_backend(function: Callable) -> Callable:
    """A function that makes a process group, over tpu_dist where NCCL is asked for."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def make(*args, **kwargs):
        call = signature.bind(*args, **kwargs)
        backend = call.arguments.get("backend")
        if isinstance(backend, str):
            call.arguments["backend"] = backend.lower().replace("cuda:nccl", "tpu:nccl").replace("nccl", NAME)
        call.arguments = {name: _as_tpu(value) for name, value in call.arguments.items()}
        return function(*call.args, **call.kwargs)

    return make


def _distributed_changes() -> list[tuple[Any, str, Any]]:
    distributed = torch.distributed
    if not distributed.is_available():
        return []
    makers = {name: _with_backend(getattr(distributed, name)) for name in ("init_process_group", "new_group")}
    changes = {**makers, "is_nccl_available": lambda: True}
    return [(owner, *change) for owner in (distributed, distributed.distributed_c10d) for change in changes.items()]


class _GeneratorType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class _Generator(metaclass=_GeneratorType):
    """``torch.Generator``, on tpu where cuda is named."""

    def __new__(cls, device="cpu"):
        return torch._C.Generator(device=_as_tpu(device))


def _cuda_changes() -> list[tuple[Any, str, Any]]:
    """What of ``torch`` has another value while cuda means tpu."""
    own = {"is_available", "device_count", "get_device_capability", "init", "is_initialized"}
    shared = [name for name in torch.tpu.__all__ if hasattr(torch.cuda, name) and name not in own]
    changes = [
        (torch.cuda, name, _with_device(getattr(torch.tpu, name), "device", 0))
        for name in shared
        if callable(getattr(torch.tpu, name)) and not isinstance(getattr(torch.tpu, name), type)
    ]
    changes += [
        (torch.cuda, name, getattr(torch.tpu, name)) for name in shared if isinstance(getattr(torch.tpu, name), type)
    ]
    autocast = torch.amp.autocast_mode.autocast
    scaler = torch.amp.grad_scaler.GradScaler
    return [
        *changes,
        *_distributed_changes(),
        (torch.cuda, "is_available", torch.tpu.is_available),
        (torch.cuda, "device_count", torch.tpu.device_count),
        (torch.cuda, "init", torch.tpu.init),
        (torch.cuda, "is_initialized", torch.tpu.is_initialized),
        (torch.cuda, "get_device_capability", lambda device=None: _CUDA_CAPABILITY),
        (autocast, "__init__", _with_device(autocast.__init__, "device_type", 1)),
        (scaler, "__init__", _with_device(scaler.__init__, "device", 1, "cuda")),
        (torch, "load", _load(torch.load)),
        (torch, "Generator", _Generator),
    ]


class FollowMode(TorchFunctionMode):
    """Moves CPU tensors to tpu where they meet tensors that are there, and keeps the lines at which they did.

    Tensors without dimensions stay: PyTorch takes them beside tensors of any device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moved: Counter[Place] = Counter()
        self.active = False

    def _move(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and leaf.dim() > 0:
            return leaf.to("tpu")
        return leaf

    def follow(self, tree: Any) -> Any:
        """The same with its CPU tensors on tpu."""
        return pytree.tree_map(self._move, tree)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block, nothing is moved."""
        active, self.active = self.active, False
        try:
            yield
        finally:
            self.active = active

    def note(self, frame) -> None:
        """Keep the line of the program that a stack is in."""
        call, own = find_places(frame)
        self.moved[own if own.line else call] += 1

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.active or torch.compiler.is_compiling() or func in _STAYING:
            return func(*args, **kwargs)
        leaves = [leaf for leaf in pytree.arg_tree_leaves(*args, **kwargs) if isinstance(leaf, torch.Tensor)]
        devices = {leaf.device.type for leaf in leaves if leaf.device.type == "tpu" or leaf.dim() > 0}
        if devices == {"cpu", "tpu"}:
            self.note(sys._getframe(1))
            args, kwargs = self.follow((args, kwargs))
        return func(*args, **kwargs)


# Between devices is where these work.
_STAYING = {torch.Tensor.copy_, torch.Tensor.to, torch.Tensor.data.__set__, torch.Tensor.grad.__set__}


def move_module(module: torch.nn.Module) -> None:
    """Move a module to tpu in place: its parameters stay the objects that an optimizer holds."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data = parameter.data.to("tpu")
            if parameter.grad is not None:
                parameter.grad = parameter.grad.to("tpu")
        for part in module.modules():
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    part._buffers[name] = buffer.to("tpu")


def is_cpu_program(module: torch.nn.Module) -> bool:
    """Is this module, about to be called, one of a program that has put nothing on a device?"""
    devices = {parameter.device.type for parameter in module.parameters()}
    return devices == {"cpu"} and torch.tpu.memory_allocated() == 0


def _memory_changes(limit: int) -> list[tuple[Any, str, Any]]:
    """The chip's memory, where the simulated one has more so that programs may go on beyond it."""
    properties = torch.tpu.get_device_properties

    def get_device_properties(device=None):
        found = properties(device)
        found.total_memory = limit
        return found

    def mem_get_info(device=None):
        return max(limit - torch.tpu.memory_allocated(device), 0), limit

    return [(torch.tpu, "get_device_properties", get_device_properties), (torch.tpu, "mem_get_info", mem_get_info)]


@contextlib.contextmanager
def mapped(cuda: bool, follow: FollowMode | None, limit: int) -> Iterator[None]:
    """Within the block, devices are mapped as the options say, and have ``limit`` bytes of memory."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_attributes(_memory_changes(limit)))
        if cuda:
            stack.enter_context(_attributes(_cuda_changes()))
            stack.enter_context(CudaMode())
        if follow is not None:
            stack.enter_context(follow)
        yield
