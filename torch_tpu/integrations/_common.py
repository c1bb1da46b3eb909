"""What the integrations share."""

import functools
import sys
from collections.abc import Callable

import torch

OTHERS = (torch.cuda, torch.xpu, torch.backends.mps)  # the accelerators that PyTorch itself may have beside tpu


def is_tpu_available() -> bool:
    """Is tpu what PyTorch calls this machine's accelerator, with no other one at hand? Starts nothing."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "tpu" and not any(other.is_available() for other in OTHERS)


def set_random_states(states: list[torch.Tensor]) -> None:
    """Give each device the random state that it had, of those that there are still."""
    for index, state in zip(range(torch.tpu.device_count()), states, strict=False):
        torch.tpu.set_rng_state(state, index)


def tpu_for_cpu(choose: Callable[..., str]) -> Callable[..., str]:
    """A function that chooses a device's name, with tpu where it would be the CPU and tpu is available."""

    def chosen(*args, **kwargs) -> str:
        name = choose(*args, **kwargs)
        return "tpu" if name == "cpu" and is_tpu_available() else name

    return chosen


def put_before(make: dict[Callable, Callable[[Callable], Callable]]) -> None:
    """Replace each function by what is made of it, in every module that has imported it under whatever name."""
    replaced = {
        id(function): functools.wraps(function, updated=())(before(function)) for function, before in make.items()
    }
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name, value in list(names.items()):
            if id(value) in replaced:
                names[name] = replaced[id(value)]


def put_before_method(owner: type, name: str, make: Callable[[Callable], Callable]) -> None:
    """Replace a method, static method or property's getter by what is made of it."""
    found = owner.__dict__[name]
    if isinstance(found, property):
        before = property(functools.wraps(found.fget)(make(found.fget)), doc=found.__doc__)
    elif isinstance(found, staticmethod):
        before = staticmethod(functools.wraps(found.__func__)(make(found.__func__)))
    else:
        before = functools.wraps(found)(make(found))
    setattr(owner, name, before)
