"""The part of a compiled graph that computes on the CPU, apart from the rest, so that the rest can be one program.

Optimizers keep their step counts on the CPU and compute a few numbers from them, and models move their inputs to the
device themselves. A program cannot do either: this part runs first, by PyTorch on the CPU, and hands over tensors on
tpu. Numbers go together, in one copy for each dtype.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    return [x for x in (value if isinstance(value, list | tuple) else [value]) if isinstance(x, torch.Tensor)]


def _is_on_cpu(node: fx.Node) -> bool:
    tensors = _tensors(node)
    return bool(tensors) and all(x.device.type == "cpu" and x.layout is torch.strided for x in tensors)


def _is_upload(node: fx.Node) -> bool:
    """Is it ``x.to("tpu")``?"""
    device = node.kwargs.get("device")
    return node.target is torch.ops.aten._to_copy.default and device is not None and device.type == "tpu"


def _is_write(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _host_nodes(graph: fx.Graph) -> dict[fx.Node, None] | None:
    """The operators that only need arguments on the CPU, and those arguments; None: they cannot be taken apart."""
    found = {node: None for node in graph.nodes if node.op == "placeholder" and _is_on_cpu(node)}
    for node in graph.nodes:
        if node.op != "call_function" or not any(x in found for x in node.all_input_nodes):
            continue
        if _is_on_cpu(node) or _is_upload(node):
            if not all(x in found or (x.op == "placeholder" and not _tensors(x)) for x in node.all_input_nodes):
                return None  # it needs something of the device's, too
            found[node] = None
        elif not _tensors(node):
            return None  # a value that is read on the host decides about the rest
    return found


def _crossing(graph: fx.Graph, host: Iterable[fx.Node]) -> list[fx.Node]:
    """What the device's part takes of the host's."""
    return [node for node in host if any(user not in host and user.op != "output" for user in node.users)]


def _is_number(node: fx.Node) -> bool:
    return _is_on_cpu(node) and isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].dim() == 0


class _Numbers:
    """0-d tensors on the CPU that cross, by dtype: stacked and uploaded by the one part, taken apart by the other."""

    def __init__(self, crossing: list[fx.Node]):
        self.by_dtype: dict[torch.dtype, list[fx.Node]] = {}
        for node in filter(_is_number, crossing):
            self.by_dtype.setdefault(node.meta["val"].dtype, []).append(node)

    def pack(self, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> list[fx.Node]:
        packed = []
        for nodes in self.by_dtype.values():
            stacked = graph.call_function(torch.ops.aten.stack.default, ([copies[node] for node in nodes],))
            packed.append(graph.call_function(torch.ops.aten._to_copy.default, (stacked,), {"device": "tpu"}))
        return packed

    def unpack(self, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> None:
        for at, nodes in enumerate(self.by_dtype.values()):
            numbers = graph.call_function(torch.ops.aten.unbind.int, (graph.placeholder(f"numbers_{at}"),))
            for i, node in enumerate(nodes):
                copies[node] = graph.call_function(operator.getitem, (numbers, i))


def _any_after_a_write(host: Iterable[fx.Node], crossing: list[fx.Node]) -> bool:
    """Does something cross that is computed behind the first write to an argument? Numbers are packed before it."""
    order = list(host)
    first = next((at for at, node in enumerate(order) if _is_write(node)), len(order))
    return not set(order[first:]).isdisjoint(crossing)


def _results(graph: fx.Graph) -> list:
    values = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    return list(values) if isinstance(values, list | tuple) else [values]


def _make_host(module: fx.GraphModule, host: dict[fx.Node, None], crossing: list, numbers: _Numbers, returned: list):
    """All placeholders -> (what crosses, the packed numbers, results)."""
    graph, copies = fx.Graph(), {}
    packed = None
    for node in module.graph.nodes:
        if node.op == "placeholder":
            copies[node] = graph.placeholder(node.name)
        elif node in host:
            if packed is None and _is_write(node):
                packed = numbers.pack(graph, copies)  # as they were before; writes come last
            copies[node] = graph.node_copy(node, copies.__getitem__)
    packed = numbers.pack(graph, copies) if packed is None else packed
    graph.output(([copies[node] for node in crossing], packed, [copies[node] for node in returned]))
    return fx.GraphModule({}, graph)


def _make_device(module: fx.GraphModule, host: dict[fx.Node, None], crossing: list, numbers: _Numbers, results: list):
    """What crosses, the packed numbers, the placeholders that are not the host's -> results."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in crossing}
    numbers.unpack(graph, copies)
    for node in module.graph.nodes:
        if node.op == "placeholder" and node not in host:
            copies[node] = graph.placeholder(node.name)
    for node in module.graph.nodes:
        if node not in host and node.op not in ("placeholder", "output"):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies.get(x, x) if isinstance(x, fx.Node) else x for x in results])
    return fx.GraphModule(module, graph)


@dataclasses.dataclass
class Parts:
    """A graph in its two parts."""

    device: fx.GraphModule
    host: fx.GraphModule | None = None
    kept: list[int] = dataclasses.field(default_factory=list)  # the arguments that the device's part takes itself
    order: list[tuple[bool, int]] = dataclasses.field(default_factory=list)  # of results: from the device?, number

    def around(self, run_device: Callable[[list], Any]) -> Callable[[list], Any]:
        """What takes the whole graph's arguments, given what runs the device's part."""
        if self.host is None:
            return run_device

        def run(arguments: list) -> list:
            crossed, packed, from_host = self.host(*arguments)
            from_device = run_device([*crossed, *packed, *(arguments[at] for at in self.kept)])
            return [(from_host, from_device)[on_device][at] for on_device, at in self.order]

        return run


def split(module: fx.GraphModule) -> Parts:
    """Take a graph apart; all of it is the device's where nothing comes from the CPU, or both depend on each other."""
    host = _host_nodes(module.graph)
    crossing = _crossing(module.graph, host or {})
    if not host or _any_after_a_write(host, crossing):
        return Parts(module)
    results = _results(module.graph)
    returned = list(dict.fromkeys(x for x in results if isinstance(x, fx.Node) and x in host))
    left = [x for x in results if x not in returned]
    numbers = _Numbers(crossing)
    whole = [node for node in crossing if not _is_number(node)]
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return Parts(
        _make_device(module, host, whole, numbers, left),
        _make_host(module, host, whole, numbers, returned),
        [at for at, node in enumerate(placeholders) if node not in host],
        [(False, returned.index(x)) if x in returned else (True, left.index(x)) for x in results],
    )
