"""``torch.cond``, ``scan`` and ``while_loop`` in compiled and exported graphs: branches and loops of the program.

A graph's functions are recorded apart, on tensors of the operands' sizes without data, and become parts of the one
program, so that nothing waits for the host to decide. Functions that cannot be so, because they draw random numbers,
read a value, or give results of another size than the other branch or the round before, are run as PyTorch defines it:
the host reads the condition, and the graph is recorded anew at each call; a scan is written out step by step.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

from torch.utils import _pytree as pytree

import torch
from torch import Tensor, fx
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


def _record(
    function: Callable,
    operands: Sequence,
    carried: int = 0,
    dropped: Collection[int] = (),
    order: Sequence[int] | None = None,
) -> _Part:
    """Record a function of the operands, of which those that are no tensors are constants.

    Of the results those that are `dropped` are left out; `order` is that of the region's arguments, by operand.
    The first results come as the operands of the same numbers lie in memory: those that are carried on.
    """
    if not _is_graph(function):
        raise NotOnDevice("it is no graph")
    if _draws(function):
        raise NotOnDevice("a branch or loop draws random numbers")
    arguments = [_absent(x) if isinstance(x, Tensor) else x for x in operands]
    ordered = arguments if order is None else [arguments[i] for i in order]
    region = _C.Region(torch.tpu.current_device(), [x for x in ordered if isinstance(x, Tensor)])
    try:
        leaves, structure = pytree.tree_flatten(function(*arguments))
        leaves = [None if i in dropped else x for i, x in enumerate(leaves)]
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


def _view_of(node: Any, values: dict[fx.Node, Tensor]) -> Tensor | None:
    """What a node makes of one of the values by copies of views alone (`t_copy`); None: it is something else."""
    if not isinstance(node, fx.Node):
        return None
    if node in values:
        return values[node]
    name = node.target._schema.name if isinstance(node.target, torch._ops.OpOverload) else ""
    copies = name.endswith("_copy") and name != "aten::_to_copy"
    source = _view_of(node.args[0], values) if copies and len(node.all_input_nodes) == 1 else None
    return None if source is None else node.target(source, *node.args[1:], **node.kwargs)


def _saved_views(combine: Callable, carried: int, sliced: int, others: Sequence) -> dict[int, Tensor]:
    """The results of a scan's step that are the same at each step, copies of views of what all steps see, by number.

    PyTorch saves so for the backward pass what a product needs of its weight, once for each step. (A function that
    returns a view itself is an error, and its author's copy is a clone.)
    """
    if not _is_graph(combine):
        return {}
    *_, output = combine.graph.nodes
    inputs = [node for node in combine.graph.nodes if node.op == "placeholder"][carried + sliced :]
    values = {node: x for node, x in zip(inputs, others, strict=False) if isinstance(x, Tensor)}
    found = {i: _view_of(x, values) for i, x in enumerate(output.args[0]) if i >= carried and x not in values}
    return {i: x for i, x in found.items() if x is not None}


def flip_stacked(stacked: Tensor, dims: Sequence[int]) -> Tensor:
    """``flip`` of a scan's result, which is itself where it repeats one thing."""
    return stacked if all(stacked.stride(dim) == 0 for dim in dims) else torch.ops.aten.flip.default(stacked, dims)


def scan_on_device(combine: Callable, carried: Sequence, sliced: Sequence, others: Sequence) -> tuple:
    """``scan`` as a loop of the program; raises NotOnDevice where it cannot be one."""
    with torch.no_grad(), torch.tpu.device(_check_operands([*carried, *sliced, *others])):
        if not all(isinstance(x, Tensor) for x in (*carried, *sliced)) or not carried:
            raise NotOnDevice("it carries something else than tensors, or nothing")
        steps = {x.shape[:1] for x in sliced}
        if len(steps) != 1 or not all(steps.pop()):
            raise NotOnDevice("it has no steps, or not the same number for each tensor")
        slices, saved = [x[0] for x in sliced], _saved_views(combine, len(carried), len(sliced), others)
        same = [i for i, x in enumerate(sliced) if i > 0 and x.stride(0) == 0]  # at each step; the first says how many
        varying = [i for i in range(len(sliced)) if i not in same]
        first_other = len(carried) + len(sliced)
        order = [*range(len(carried)), *(len(carried) + i for i in varying)]
        order += [*range(first_other, first_other + len(others)), *(len(carried) + i for i in same)]
        step = _record(combine, [*carried, *slices, *others], len(carried), saved, order)
        state, outputs = _in_order(carried), step.results[len(carried) :]
        if _types(step.results[: len(carried)]) != _types(state):
            raise NotOnDevice("a step changes the sizes or dtypes of what is carried")
        rows = [_dense(sliced[i].permute(0, *(1 + dim for dim in _order(slices[i])))) for i in varying]
        seen = _in_order([*others, *(slices[i] for i in same)])
        results = [*state, *(x.expand(len(sliced[0]), *x.shape) for x in outputs)]
        results = _C.record_control("scan", [step.text], [state, rows, seen], results)
        leaves = pytree.tree_leaves(_laid_out(results, step))
        return tuple(
            saved[i].expand(len(sliced[0]), *saved[i].shape) if i in saved else x for i, x in enumerate(leaves)
        )


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
