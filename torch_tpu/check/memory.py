"""A program's memory on the device: over time, what was alive at its highest point, and where that was made."""

from typing import Any

import torch
from torch_tpu import _C
from torch_tpu.check.places import NOWHERE, Place

_POINTS = 2000  # of the curve
_LARGEST = 12  # tensors listed
_LEAST = 1 << 10  # bytes of a storage that is followed
_GROWTH = 1.02  # a new highest point this much above the last is looked at


class Made:
    """Where a storage was made, and of what kind."""

    __slots__ = ("backward", "dtype", "name", "place", "sizes", "within")

    def __init__(self, call: Any, tensor: torch.Tensor) -> None:
        self.name, self.backward = call.name, call.backward
        self.place: Place = call.own if call.own is not NOWHERE else call.call
        self.within: Place = call.call
        self.dtype, self.sizes = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)


class Curve:
    """Bytes over operators in a bounded number of points: of each stretch the highest."""

    def __init__(self) -> None:
        self.points: list[tuple[int, int]] = []
        self._stride = 1

    def add(self, at: int, value: int) -> None:
        """Add a point; ``at`` grows."""
        if self.points and at // self._stride == self.points[-1][0] // self._stride:
            if value > self.points[-1][1]:
                self.points[-1] = (at, value)
            return
        self.points.append((at, value))
        if len(self.points) > _POINTS:
            self._stride *= 2
            points, self.points = self.points, []
            for point in points:
                self.add(*point)


class MemoryWatch:
    """Follows the live storages of a device.

    Parameters
    ----------
    device
        Its index.
    limit
        Bytes of the chip's memory.
    owners
        Gives the modules and optimizers of the program, to name what belongs to them.
    """

    def __init__(self, device: int, limit: int, owners: Any) -> None:
        self.device, self.limit, self.owners = device, limit, owners
        self.curve = Curve()
        self.peak = 0
        self.exceeded: dict | None = None  # the first time that live tensors held more than the limit
        self.largest: list[dict] = []
        self.kinds: dict[str, int] = {}
        self._made: dict[int, Made] = {}
        self._look_above = 0

    def note(self, at: int, held: int, grown: bool, call: Any, results: list[torch.Tensor]) -> None:
        """An operator changed how much live tensors hold."""
        self.curve.add(at, held)
        if not grown:
            return
        for tensor in results:
            if tensor.device.type == "tpu" and tensor.layout == torch.strided:
                storage = tensor.untyped_storage()
                if storage.nbytes() >= _LEAST:
                    self._made[storage.data_ptr()] = Made(call, tensor)
        if held > self.limit and self.exceeded is None:
            place = call.own if call.own is not NOWHERE else call.call
            self.exceeded = {"place": place, "within": call.call, "operator": call.name, "bytes": held}
        if held > self.peak:
            self.peak = held
            if held > self._look_above:
                self._look_above = int(held * _GROWTH) + _LEAST
                self._look()

    # ---- the highest point

    def _look(self) -> None:
        live = sorted(_C.live_storages(self.device, _LEAST), key=lambda storage: -storage[1])
        names = self._names()
        self.kinds = {}
        for address, size in live:
            kind = names.get(address, ("activations and other tensors", ""))[0]
            self.kinds[kind] = self.kinds.get(kind, 0) + size
        self.largest = [self._describe(address, size, names) for address, size in live[:_LARGEST]]

    def _names(self) -> dict[int, tuple[str, str]]:
        """What belongs to modules and optimizers, by address: its kind and name."""
        names: dict[int, tuple[str, str]] = {}

        def add(tensor: Any, kind: str, name: str) -> None:
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "tpu" and tensor.layout == torch.strided:
                names.setdefault(tensor.untyped_storage().data_ptr(), (kind, name))

        modules, optimizers = self.owners()
        of_parameter = {}
        for module in modules:
            for name, parameter in module.named_parameters():
                of_parameter[parameter] = name
                add(parameter.detach(), "parameters", name)
                add(parameter.grad, "gradients", f"gradient of {name}")
            for name, buffer in module.named_buffers():
                add(buffer, "buffers", name)
        for optimizer in optimizers:
            for parameter, state in optimizer.state.items():
                for key, value in state.items() if isinstance(state, dict) else ():
                    add(value, "optimizer state", f"{key} of {of_parameter.get(parameter, 'a parameter')}")
        return names

    def _describe(self, address: int, size: int, names: dict[int, tuple[str, str]]) -> dict:
        made = self._made.get(address)
        kind, name = names.get(address, ("activations and other tensors", ""))
        described = {
            "bytes": size,
            "kind": kind,
            "name": name,
            "place": made.place if made else NOWHERE,
            "within": made.within if made else NOWHERE,
        }
        if made:
            described |= {"operator": made.name, "dtype": made.dtype, "sizes": made.sizes, "backward": made.backward}
        return described


def findings(watch: MemoryWatch, temporaries: int, step_marks: list[int]) -> dict:
    """The part of the report: peak against limit, the curve, the largest tensors.

    A program's temporaries are tensors that are gone when it runs, which live tensors counted once, and what operators
    need inside: the sum of both is an upper bound.
    """
    stats = _C.memory_stats(watch.device)
    return {
        "limit": watch.limit,
        "peak": watch.peak,
        "temporaries": temporaries,
        "over": max(0, watch.peak + temporaries - watch.limit),
        "software_peak": stats["peak_bytes_in_use"],
        "exceeded": watch.exceeded,
        "kinds": dict(sorted(watch.kinds.items(), key=lambda kind: -kind[1])),
        "largest": watch.largest,
        "curve": watch.curve.points,
        "steps": step_marks,
    }
