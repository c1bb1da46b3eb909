"""What a step of a program is: a step of an optimizer, or, where it has none, a call of a whole module."""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import torch
from torch_tpu import _C
from torch_tpu._imports import when_imported

_FORWARDS_A_STEP = 8  # a program that may train is given so many calls of its module before its first step is awaited


class Enough(BaseException):
    """Ends a program of which enough was seen. No ``Exception``, so that programs do not catch it."""


class Step:
    """What a step took: seconds here, changes of the runtime's counters, and runs of programs by their key."""

    def __init__(self, seconds: float, counters: dict[str, int], runs: dict[int, int]) -> None:
        self.seconds, self.counters, self.runs = seconds, counters, runs


class Steps:
    """Counts steps, keeps what each did, and ends the program after enough of them.

    Parameters
    ----------
    device
        The index of the device.
    most
        After how many steps the program ends; 0 for never.
    seconds
        After how many seconds it ends.
    before_module
        Called with each whole module that is about to be called and its arguments; gives the arguments.

    Attributes
    ----------
    now : int
        How many steps have ended.
    kind : str
        "optimizer" once an optimizer has made a step, else "forward".
    ended : list of Step
    programs : dict
        By their keys, what is known of the programs that ran in these steps (``_C.programs``).
    """

    def __init__(self, device: int, most: int, seconds: float, before_module: Callable) -> None:
        self.device, self.most, self.deadline = device, most, time.monotonic() + seconds
        self.before_module = before_module
        self.now = 0
        self.kind = "forward"
        self.ended: list[Step] = []
        self.programs: dict[int, dict] = {}
        self.optimizers: weakref.WeakSet = weakref.WeakSet()
        self.on_end: list[Callable[[], None]] = []
        self.on_join: list[Callable[[], None]] = []  # called where all that was seen turns out to be the first step
        self._depth = 0
        self._runs: dict[int, int] = {}
        self._counters = _C.counters()
        self._began = time.monotonic()

    def check_time(self) -> None:
        """End the program when its time is over."""
        if time.monotonic() > self.deadline:
            raise Enough("time")

    def end(self) -> None:
        """A step has ended that was neither an optimizer's nor a module's."""
        self._end(self.most)

    def _end(self, most: int) -> None:
        _C.flush(self.device)
        counters, began = _C.counters(), self._began
        self._began = time.monotonic()
        changes = {name: now - self._counters[name] for name, now in counters.items() if isinstance(now, int)}
        self.ended.append(Step(self._began - began, changes, self._new_runs()))
        self._counters = counters
        self.now += 1
        for call in self.on_end:
            call()
        if most and self.now >= most:
            raise Enough("steps")

    def _new_runs(self) -> dict[int, int]:
        runs = {}
        for program in _C.programs(self.device):
            key = program["key"]
            count = program["runs"] - self._runs.get(key, 0)
            self._runs[key] = program["runs"]
            if count > 0:
                runs[key] = count
                self.programs[key] = program
        return runs

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self.optimizers.add(optimizer)

    def _after_optimizer(self, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self.kind == "forward":  # the calls so far were parts of this step
            self.kind, self.now, self.ended = "optimizer", 0, []
            for call in self.on_join:
                call()
        self._end(self.most)

    def _after_module(self, module: torch.nn.Module) -> None:
        if self.kind != "forward" or next(module.parameters(), None) is None:
            return
        may_train = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
        self._end(self.most * (_FORWARDS_A_STEP if may_train else 1))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Within the block, steps are counted: the class of all modules has another ``__call__``."""
        call_module = torch.nn.Module.__call__

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return call_module(module, *args, **kwargs)
            if self._depth == 0:
                args, kwargs = self.before_module(module, args, kwargs)
            self._depth += 1
            try:
                result = call_module(module, *args, **kwargs)
            finally:
                self._depth -= 1
            if self._depth == 0:
                self._after_module(module)
            return result

        # torch.compile begins with what is called, as it does behind the original
        when_imported("torch._dynamo.eval_frame", lambda dynamo: dynamo.skip_code(call.__code__))
        handles = [
            register_optimizer_step_pre_hook(self._before_optimizer),
            register_optimizer_step_post_hook(self._after_optimizer),
        ]
        torch.nn.Module.__call__ = call
        try:
            yield
        finally:
            torch.nn.Module.__call__ = call_module
            for handle in handles:
                handle.remove()
