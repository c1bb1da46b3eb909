"""``torch.cond`` and ``while_loop`` in compiled and exported graphs: branches and loops of the program itself.

A graph's functions are recorded apart, on tensors of the operands' sizes without data, and become parts of the one
program, so that nothing waits for the host to decide. Functions that cannot be so, because they draw random numbers,
read a value, or give results of another size than the other branch or the round before, are run as PyTorch defines it:
the host reads the condition, and the graph is recorded anew at each call.
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
    strides: Sequence[tuple[int, ...]]  # of the results as the function gave them

    def same_results(self, other: "_Part") -> bool:
        """Do both give tensors of the same dtypes and sizes in the same structure?"""
        types = [[(t.dtype, t.shape) for t in part.results] for part in (self, other)]
        return self.structure == other.structure and types[0] == types[1]


def _dense(tensor: Tensor) -> Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous()


def _absent(tensor: Tensor) -> Tensor:
    return _C.make_absent(torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))


def _draws(function: torch.fx.GraphModule) -> bool:
    """Does a graph call an operator that draws random numbers?"""
    graphs = [module for module in function.modules() if _is_graph(module)]
    targets = [node.target for graph in graphs for node in graph.graph.nodes]
    return any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in targets)


def _is_graph(function: Any) -> bool:
    return isinstance(function, torch.fx.GraphModule)


def _record(function: Callable, operands: Sequence) -> _Part:
    """Record a function of the operands, of which those that are no tensors are constants."""
    if not _is_graph(function):
        raise NotOnDevice("it is no graph")
    if _draws(function):
        raise NotOnDevice("a branch or loop draws random numbers")
    arguments = [_absent(x) if isinstance(x, Tensor) else x for x in operands]
    region = _C.Region(torch.tpu.current_device(), [x for x in arguments if isinstance(x, Tensor)])
    try:
        leaves, structure = pytree.tree_flatten(function(*arguments))
        if not all(isinstance(x, Tensor) and x.device.type == "tpu" for x in leaves):
            raise NotOnDevice("it returns something else than tensors on tpu")
        results = [_dense(x).clone(memory_format=torch.contiguous_format) for x in leaves]
        return _Part(region.end(results), results, structure, [x.stride() for x in leaves])
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


def _laid_out(results: Sequence[Tensor], part: _Part) -> Any:
    """The results in the function's structure, each with the strides that it has there."""
    laid = []
    for result, strides in zip(results, part.strides, strict=True):
        if result.stride() != strides:
            like = torch.empty_strided(result.shape, strides, device="meta")
            result = torch.empty_like(like, device=result.device).copy_(result)  # dense, whatever the strides are
        laid.append(result)
    return pytree.tree_unflatten(laid, part.structure)


def cond_on_device(predicate: Tensor, if_true: Callable, if_false: Callable, operands: Sequence) -> Any:
    """``cond`` as a branch of the program; raises NotOnDevice where it cannot be one."""
    with torch.no_grad(), torch.tpu.device(_check_operands([predicate, *operands])):
        parts = [_record(branch, operands) for branch in (if_true, if_false)]
        if not parts[0].same_results(parts[1]) or predicate.numel() != 1:
            raise NotOnDevice("its branches give different results")
        tensors = [_dense(x) for x in operands if isinstance(x, Tensor)]
        texts = [part.text for part in parts]
        results = _C.record_control("cond", texts, [_dense(predicate)], tensors, parts[0].results)
        return _laid_out(results, parts[0])


def while_loop_on_device(condition: Callable, body: Callable, carried: Sequence, others: Sequence) -> Any:
    """``while_loop`` as a loop of the program; raises NotOnDevice where it cannot be one."""
    with torch.no_grad(), torch.tpu.device(_check_operands([*carried, *others])):
        if not all(isinstance(x, Tensor) for x in carried):
            raise NotOnDevice("it carries something else than tensors")
        parts = [_record(function, [*carried, *others]) for function in (condition, body)]
        types = [[(t.dtype, t.shape) for t in tensors] for tensors in (parts[1].results, carried)]
        if types[0] != types[1] or [t.numel() for t in parts[0].results] != [1]:
            raise NotOnDevice("a round changes the sizes or dtypes of what is carried")
        tensors = [_dense(x) for x in others if isinstance(x, Tensor)]
        texts = [part.text for part in parts]
        results = _C.record_control("while_loop", texts, [_dense(x) for x in carried], tensors, parts[1].results)
        return _laid_out(results, parts[1])


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


REPLACED = {torch.ops.higher_order.cond: cond, torch.ops.higher_order.while_loop: while_loop}
