"""What a program does on tpu, operator by operator: a mode under which it runs.

Every call that takes or makes a tensor on tpu is counted under its operator and its place in the program. Differences
of the runtime's own counters around the call tell what it cost: values read by the host, new programs, memory.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

import torch
from torch_tpu import _C, operators
from torch_tpu.check.cost import OperatorCosts
from torch_tpu.check.memory import MemoryWatch
from torch_tpu.check.places import NOWHERE, Place, find_places
from torch_tpu.check.steps import Steps

PRINT = "print"  # the name of what shows a tensor's values: it is no operator, and modes do not see what it calls
_NO_OPERATORS = {"_has_compatible_shallow_copy_type"}  # questions about tensors, which no device answers
_MOST_SIGNATURES = 64  # kept of a call; the others are counted
_MOST_SEQUENCE_NUMBERS = 1 << 18  # of autograd's nodes, whose places are kept for the backward pass


@functools.cache
def short_name(func: torch._ops.OpOverload) -> str:
    """``add.Tensor``; with its namespace where that is not aten."""
    return func.name().removeprefix("aten::")


@functools.cache
def status_of(name: str) -> str:
    """The status of an operator of any namespace, by its short name."""
    if "::" not in name:
        return operators.status_of(name)
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1"):
        return operators.NATIVE
    composed = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in composed):
        return operators.COMPOSED
    return operators.UNSUPPORTED


@functools.cache
def _is_decomposed(func: torch._ops.OpOverload) -> bool:
    """Is it composed of others before autograd? Those reach a mode as they are in inference mode alone."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "PrivateUse1"):
        return False
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


@functools.cache
def _is_static(func: torch._ops.OpOverload) -> tuple[frozenset[int], frozenset[str]]:
    """The arguments that decide which program an operator is: neither tensors nor numbers that are passed to it."""
    passed = ("Tensor", "number", "Scalar", "Generator", "Device", "Layout", "float")
    static = [
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if not any(word in str(argument.type) for word in passed)
    ]
    return frozenset(position for position, _ in static), frozenset(name for _, name in static)


def _tensors_in(values: Any, into: list[torch.Tensor]) -> list[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            into.append(value)
        elif isinstance(value, list | tuple):
            _tensors_in(value, into)
    return into


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _static_arguments(func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> tuple:
    positions, names = _is_static(func)
    static = [_frozen(args[position]) for position in positions if position < len(args)]
    return (*static, *(_frozen(value) for name, value in kwargs.items() if name in names))


class Call:
    """An operator as it is called from one place of the program."""

    __slots__ = (
        "backward",
        "call",
        "count",
        "host_reads",
        "last_step",
        "name",
        "own",
        "signatures",
        "signatures_left_out",
        "status",
        "steps",
        "tags",
    )

    def __init__(self, name: str, tags: Iterable[torch.Tag], call: Place, own: Place, backward: bool) -> None:
        self.name, self.tags, self.call, self.own, self.backward = name, tags, call, own, backward
        self.status = status_of(name) if name != PRINT else PRINT
        self.count = self.host_reads = self.steps = self.signatures_left_out = 0
        self.last_step = -1
        self.signatures: dict[tuple, list[int]] = {}  # (tensors, static arguments) to [first step, calls]

    def note(self, signature: tuple, step: int) -> None:
        """Count one call."""
        self.count += 1
        if step != self.last_step:
            self.last_step = step
            self.steps += 1
        known = self.signatures.get(signature)
        if known is not None:
            known[1] += 1
        elif len(self.signatures) < _MOST_SIGNATURES:
            self.signatures[signature] = [step, 1]
        else:
            self.signatures_left_out += 1

    def join_steps(self) -> None:
        """All calls so far were in one step."""
        self.steps, self.last_step = min(self.count, 1), 0
        for first_and_count in self.signatures.values():
            first_and_count[0] = 0


class Recorder(TorchDispatchMode):
    """Runs a program and keeps what it calls on tpu.

    Parameters
    ----------
    device
        The index of the device whose memory is watched.
    steps
        Tells the number of the step that the program is in.
    memory
        Is told of each change of memory.
    check_time
        Called now and then; may raise to end the program.
    """

    def __init__(self, device: int, steps: Steps, memory: MemoryWatch, check_time: Callable[[], None]) -> None:
        super().__init__()
        self.device, self.steps, self.memory, self.check_time = device, steps, memory, check_time
        self.calls: dict[tuple, Call] = {}
        self.costs = OperatorCosts()
        self.operators = 0
        self.elsewhere = 0  # calls on tensors that are not on tpu
        self.prints: dict[tuple[Place, Place], Call] = {}
        self.fallen_back: dict[str, Call] = {}  # operators inside composed ones
        self.last: Call | None = None
        self._state = _C.watched(device)
        self._places: dict[int, tuple[Place, Place]] = {}  # by autograd's sequence number

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Functions that the program compiles are compiled under this mode too."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(issubclass(kind, FakeTensor) for kind in types) or short_name(func) in _NO_OPERATORS:
            return func(*args, **kwargs)
        tensors = _tensors_in(kwargs.values(), _tensors_in(args, []))
        on_tpu = any(tensor.device.type == "tpu" for tensor in tensors)
        if not on_tpu and str(kwargs.get("device", "cpu")).split(":")[0] != "tpu":
            self.elsewhere += 1
            return func(*args, **kwargs)
        if _is_decomposed(func):
            with self:
                return func.decompose(*args, **kwargs)
        call = self._call_of(func, sys._getframe(1))
        self.last = call
        static = _static_arguments(func, args, kwargs)
        fallbacks = _C.counters()["fallbacks"] if call.count == 0 and call.status == operators.COMPOSED else None
        results: list[torch.Tensor] = []
        try:
            result = func(*args, **kwargs)
            results = _tensors_in(result if isinstance(result, list | tuple) else (result,), [])
        finally:  # a call that fails was one too
            call.note((tuple((t.dtype, tuple(t.shape)) for t in tensors or results), static), self.steps.now)
        if fallbacks is not None:
            self._note_fallbacks(call, fallbacks)
        self.costs.note(call.name, func, args, kwargs, tensors, result, results)
        self._after(call, results)
        return result

    def _call_of(self, func: torch._ops.OpOverload, frame) -> Call:
        node = torch._C._current_autograd_node()
        places = self._places.get(node._sequence_nr()) if node is not None else None
        if places is None:
            places = find_places(frame)
            if node is None:
                self._places[torch._C._autograd._get_sequence_nr() - 1] = places
                if len(self._places) > _MOST_SEQUENCE_NUMBERS:
                    self._places.clear()
        key = (func, places, node is not None)
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = Call(short_name(func), func.tags, *places, node is not None)
        return call

    def _note_fallbacks(self, call: Call, before: dict[str, int]) -> None:
        for name, count in _C.counters()["fallbacks"].items():
            if count > before.get(name, 0):
                self.fallen_back.setdefault(name.removeprefix("aten::"), call)

    def _after(self, call: Call, results: list[torch.Tensor]) -> None:
        """What the runtime's counters say of the call that has just returned."""
        before, self._state = self._state, _C.watched(self.device)
        call.host_reads += self._state[0] > before[0]  # calls that wait: some read twice
        self.operators += 1
        if self._state[2] != before[2]:
            self.memory.note(self.operators, self._state[2], self._state[2] > before[2], call, results)
        if self.operators % 256 == 0:
            self.check_time()

    @contextlib.contextmanager
    def watching_prints(self) -> Iterator[None]:
        """Within the block, showing a tensor's values is noted."""
        show = torch._tensor_str._str

        def noted(tensor: torch.Tensor, **options: Any) -> str:
            if tensor.device.type != "tpu" or isinstance(tensor, FakeTensor):
                return show(tensor, **options)
            places = find_places(sys._getframe(1))
            call = self.prints.setdefault(places, Call(PRINT, (), *places, False))
            before = _C.watched(self.device)[0]
            text = show(tensor, **options)
            self.resume()
            call.host_reads += self._state[0] > before
            call.note((), self.steps.now)
            return text

        torch._tensor_str._str = noted
        try:
            yield
        finally:
            torch._tensor_str._str = show

    def files(self) -> set[str]:
        """The program's own files from which operators were called."""
        return {call.own.file for call in self.calls.values() if call.own is not NOWHERE}

    def join_steps(self) -> None:
        """What was taken for steps was the first one."""
        for call in (*self.calls.values(), *self.prints.values()):
            call.join_steps()

    def resume(self) -> None:
        """Forget what the runtime's counters say of work that was not the program's."""
        self._state = _C.watched(self.device)
