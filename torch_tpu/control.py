"""``torch.cond``, ``scan`` and ``while_loop`` in compiled and exported graphs: branches and loops of the program.

A graph's functions are recorded apart, on tensors of the operands' sizes without data, and become parts of the one
program, so that nothing waits for the host to decide. Functions that cannot be so, because they draw random numbers,
read a value, or give results of another size than the other branch or the round before, are run as PyTorch defines it:
the host reads the condition, and the graph is recorded anew at each call; a scan is written out step by step.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils import _pytree as pytree

import torch
from torch import Tensor
from torch_tpu import _C


class NotOnDevice(RuntimeError):
    """A function that is no part of a program; says why."""


@dataclasses.dataclass(frozen=True)
class _Part:
    """A recorded function: its StableHLO, its results without data, and the structure that they are returned in."""

    text: str
    results: Sequence[Tensor]
    structure: pytree.TreeSpec
    strides: Sequence[tuple[int, ...] | None]  # of the results as the function gave them; None: it gave None there
    orders: Sequence[list[int]]  # of the dimensions of the first results, which are carried

    def same_results(self, other: "_Part") -> bool:
        """Do both give tensors of the same dtypes and sizes in the same structure?"""
        nothing = [[strides is None for strides in part.strides] for part in (self, other)]
        same = self.structure == other.structure and nothing[0] == nothing[1]
        return same and _types(self.results) == _types(other.results)


def _types(tensors: Sequence[Tensor]) -> list[tuple[torch.dtype, torch.Size]]:
    return [(t.dtype, t.shape) for t in tensors]


def _dense(tensor: Tensor) -> Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous()


def _absent(tensor: Tensor) -> Tensor:
    return _C.make_absent(torch.empty_like(tensor, device="meta"))


def _order(tensor: Tensor) -> list[int]:
    """The dimensions of a tensor as they lie in memory, the outermost first: so a region knows its arguments."""
    strides = torch.empty_like(tensor, device="meta").stride()  # dense, whatever the tensor's are
    return sorted(range(tensor.dim()), key=lambda dim: -strides[dim])


def _in_order(tensors: Sequence) -> list[Tensor]:
    """Those of the operands that are tensors, as a region takes them."""
    return [_dense(x.permute(_order(x))) for x in tensors if isinstance(x, Tensor)]


def _from_order(tensor: Tensor, order: Sequence[int]) -> Tensor:
    return tensor.permute(sorted(range(len(order)), key=order.__getitem__))


def _draws(function: torch.fx.GraphModule) -> bool:
    """Does a graph call an operator that draws random numbers?"""
    graphs = [module for module in function.modules() if _is_graph(module)]
    targets = [node.target for graph in graphs for node in graph.graph.nodes]
    return any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in targets)


def _is_graph(function: Any) -> bool:
    return isinstance(function, torch.fx.GraphModule)


def _record(function: Callable, operands: Sequence, carried: int = 0) -> _Part:
    """Record a function of the operands, of which those that are no tensors are constants.

    The first results come as the operands of the same numbers lie in memory: those that are carried on.
    """
    if not _is_graph(function):
        raise NotOnDevice("it is no graph")
    if _draws(function):
        raise NotOnDevice("a branch or loop draws random numbers")
    arguments = [_absent(x) if isinstance(x, Tensor) else x for x in operands]
    region = _C.Region(torch.tpu.current_device(), [x for x in arguments if isinstance(x, Tensor)])
    try:
        leaves, structure = pytree.tree_flatten(function(*arguments))
        if not all(x is None or (isinstance(x, Tensor) and x.device.type == "tpu") for x in leaves):
            raise NotOnDevice("it returns something else than tensors on tpu")
        strides = [None if x is None else x.stride() for x in leaves]
        orders = [_order(x) for x in operands[:carried]]
        leaves[:carried] = [x.permute(order) for x, order in zip(leaves, orders, strict=False)]
        results = [_dense(x).clone(memory_format=torch.contiguous_format) for x in leaves if x is not None]
        return _Part(region.end(results), results, structure, strides, orders)
    except RuntimeError as error:  # it read a value, as `item` does, or wrote what is not its own
        raise NotOnDevice(str(error)) from error
    finally:
        region.cancel()


def _check_operands(operands: Sequence) -> torch.device:
    """The device of the operands."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    devices = {x.device for x in tensors}
    if len(devices) != 1 or next(iter(devices)).type != "tpu":
        raise NotOnDevice("its operands are not on one tpu")
    return devices.pop()


def _with_strides(result: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A result with these strides, or dense in their order where they are not dense; what is stacked is row-major."""
    if result.stride() == strides or result.dim() > len(strides):
        return result
    like = torch.empty_strided(result.shape, strides, device="meta")
    return torch.empty_like(like, device=result.device).copy_(result)


def _laid_out(results: Sequence[Tensor], part: _Part) -> Any:
    """The results in the function's structure, each with the strides that it has there."""
    carried = [_from_order(result, order) for result, order in zip(results, part.orders, strict=False)]
    given = iter([*carried, *results[len(carried) :]])
    laid = [None if strides is None else _with_strides(next(given), strides) for strides in part.strides]
    return pytree.tree_unflatten(laid, part.structure)


def cond_on_device(predicate: Tensor, if_true: Callable, if_false: Callable, operands: Sequence) -> Any:
    """``cond`` as a branch of the program; raises NotOnDevice where it cannot be one."""
    with torch.no_grad(), torch.tpu.device(_check_operands([predicate, *operands])):
        parts = [_record(branch, operands) for branch in (if_true, if_false)]
        if not parts[0].same_results(parts[1]) or predicate.numel() != 1:
            raise NotOnDevice("its branches give different results")
        texts = [part.text for part in parts]
        results = _C.record_control("cond", texts, [[_dense(predicate)], _in_order(operands)], parts[0].results)
        return _laid_out(results, parts[0])


def while_loop_on_device(condition: Callable, body: Callable, carried: Sequence, others: Sequence) -> Any:
    """``while_loop`` as a loop of the program; raises NotOnDevice where it cannot be one."""
    with torch.no_grad(), torch.tpu.device(_check_operands([*carried, *others])):
        if not all(isinstance(x, Tensor) for x in carried):
            raise NotOnDevice("it carries something else than tensors")
        decides = _record(condition, [*carried, *others])
        step = _record(body, [*carried, *others], len(carried))
        state = _in_order(carried)
        if _types(step.results) != _types(state) or [t.numel() for t in decides.results] != [1]:
            raise NotOnDevice("a round changes the sizes or dtypes of what is carried")
        texts = [decides.text, step.text]
        results = _C.record_control("while_loop", texts, [state, _in_order(others)], step.results)
        return _laid_out(results, step)


def scan_on_device(combine: Callable, carried: Sequence, sliced: Sequence, others: Sequence) -> tuple:
    """``scan`` as a loop of the program; raises NotOnDevice where it cannot be one."""
    with torch.no_grad(), torch.tpu.device(_check_operands([*carried, *sliced, *others])):
        if not all(isinstance(x, Tensor) for x in (*carried, *sliced)) or not carried:
            raise NotOnDevice("it carries something else than tensors, or nothing")
        steps = {x.shape[:1] for x in sliced}
        if len(steps) != 1 or not all(steps.pop()):
            raise NotOnDevice("it has no steps, or not the same number for each tensor")
        step = _record(combine, [*carried, *(x[0] for x in sliced), *others], len(carried))
        state, outputs = _in_order(carried), step.results[len(carried) :]
        if _types(step.results[: len(carried)]) != _types(state):
            raise NotOnDevice("a step changes the sizes or dtypes of what is carried")
        rows = [_dense(x.permute(0, *(1 + dim for dim in _order(x[0])))) for x in sliced]
        results = [*state, *(x.expand(len(sliced[0]), *x.shape) for x in outputs)]
        results = _C.record_control("scan", [step.text], [state, rows, _in_order(others)], results)
        return tuple(pytree.tree_leaves(_laid_out(results, step)))


def cond(predicate: Any, if_true: Callable, if_false: Callable, operands: Sequence = ()) -> Any:
    """PyTorch's higher-order operator ``cond``: what one of two functions makes of the operands."""
    if not isinstance(predicate, Tensor):
        return (if_true if predicate else if_false)(*operands)
    try:
        return cond_on_device(predicate, if_true, if_false, operands)
    except NotOnDevice:
        return torch.ops.higher_order.cond(predicate, if_true, if_false, operands)


def while_loop(condition: Callable, body: Callable, carried: Sequence, others: Sequence = ()) -> Any:
    """PyTorch's higher-order operator ``while_loop``: what is carried, after as many rounds as the condition wants."""
    try:
        return while_loop_on_device(condition, body, carried, others)
    except NotOnDevice:
        return torch.ops.higher_order.while_loop(condition, body, carried, others)


def scan(combine: Callable, carried: Sequence, sliced: Sequence, others: Sequence = ()) -> tuple:
    """PyTorch's higher-order operator ``scan``: what is carried in the end, and the results of all steps, stacked."""
    try:
        return scan_on_device(combine, carried, sliced, others)
    except NotOnDevice:
        return torch.ops.higher_order.scan(combine, carried, sliced, others)


REPLACED = {
    torch.ops.higher_order.cond: cond,
    torch.ops.higher_order.scan: scan,
    torch.ops.higher_order.while_loop: while_loop,
}
