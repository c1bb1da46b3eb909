"""What Python code does with tensors, captured as one StableHLO program.

The function runs once on the tpu device, with tensors that have sizes and no data; nothing is computed. Whatever it
reads that existed before becomes an argument of the program, whatever it returns or leaves written a result; a tensor
that it writes in place is an argument whose place a result takes.
"""

import contextlib
import dataclasses
import gc
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch.utils import _pytree as pytree

import torch
from torch_tpu import _C, control
from torch_tpu.aot import sharding

NUMBERS = "numbers"  # the name of the vectors in which a program's Python numbers travel


@dataclasses.dataclass(frozen=True)
class Value:
    """An argument or result of a program: its name, dtype and sizes in the order of memory."""

    name: str
    dtype: str
    dims: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """A captured program.

    Attributes
    ----------
    arguments, results : tuple of Value
        In order.
    aliases : dict of int to int
        Which argument's place is taken by which result.
    operators : int
        How many of PyTorch's operators were recorded.
    """

    arguments: tuple[Value, ...]
    results: tuple[Value, ...]
    aliases: dict[int, int]
    operators: int
    _captured: Any = dataclasses.field(repr=False)

    def text(
        self, mesh: Mapping[str, int] | None = None, shardings: Mapping[str, sharding.Sharding] | None = None
    ) -> str:
        """The program as StableHLO, with the shardings of its arguments over a mesh.

        A result that takes an argument's place is sharded as that is; how the others are, the compiler decides.
        """
        arguments, results = [""] * len(self.arguments), [""] * len(self.results)
        partitions = 1
        for size in (mesh or {}).values():
            partitions *= size
        for at, value in enumerate(self.arguments):
            parts = []
            if at in self.aliases:
                parts.append(f"tf.aliasing_output = {self.aliases[at]} : i32")
            found = sharding.find(value.name, shardings or {})
            if mesh and partitions > 1:
                text = sharding.annotation(value.name, value.dims, found or (), mesh)
                parts.append(f'mhlo.sharding = "{text}"')
                if at in self.aliases:
                    results[self.aliases[at]] = f'mhlo.sharding = "{text}"'
            arguments[at] = ", ".join(parts)
        module = f"mhlo.num_partitions = {partitions} : i32, mhlo.num_replicas = 1 : i32" if partitions > 1 else ""
        return self._captured.text(module, arguments, results).decode()


# ---- tensors without data ----


def absent(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on tpu of the same sizes, dtype and (if it is dense) strides, with no data and no memory of the host."""
    return _C.make_absent(tensor)


def without_data(module: torch.nn.Module) -> torch.nn.Module:
    """Move a module's parameters and buffers to tpu without data, in place: for programs that are compiled, not run.

    A model that was made under ``torch.device("meta")`` needs no memory at all so. Tied parameters stay tied.
    """
    made: dict[int, torch.Tensor] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in made:
                made[id(parameter)] = torch.nn.Parameter(absent(parameter.detach()), parameter.requires_grad)
            part._parameters[name] = made[id(parameter)]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = made.setdefault(id(buffer), absent(buffer))
    return module


def _absent_arguments(tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: absent(leaf.detach()) if isinstance(leaf, torch.Tensor) else leaf, tree)


# ---- names ----


def _path(prefix: str, keys: Sequence) -> str:
    parts = [prefix]
    for key in keys:
        parts.append(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))))
    return ".".join(part for part in parts if part)


def _named_leaves(prefix: str, tree: Any) -> list[tuple[str, torch.Tensor]]:
    leaves, _ = pytree.tree_flatten_with_path(tree)
    return [(_path(prefix, keys), leaf) for keys, leaf in leaves if isinstance(leaf, torch.Tensor)]


def _bind(function: Callable, args: Sequence, kwargs: Mapping) -> dict[str, Any]:
    """The arguments by the names of the function's parameters, as far as it tells them."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {**{str(i): value for i, value in enumerate(args)}, **kwargs}
    names = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in bound:
            continue
        if parameter.kind == parameter.VAR_KEYWORD:
            names |= bound[name]
        else:
            names[name] = bound[name]
    return names


def _state_tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors on tpu of modules and of optimizers, named after the parameter that they belong to."""
    names: dict[int, str] = {}
    for prefix, part in state.items():
        if isinstance(part, torch.nn.Module):
            for name, tensor in [*part.named_parameters(), *part.named_buffers()]:
                names[id(tensor)] = _path(prefix, [name])
                yield names[id(tensor)], tensor
    for part in state.values():
        if isinstance(part, torch.optim.Optimizer):
            for index, parameter in enumerate(p for group in part.param_groups for p in group["params"]):
                owner = names.get(id(parameter), f"parameters.{index}")
                for key, value in part.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor) and value.device.type == "tpu":
                        yield f"{key}.{owner}", value


def _as_state(state: Any) -> dict[str, Any]:
    """Modules and optimizers by a prefix of their tensors' names: none for those that come in a sequence."""
    if isinstance(state, Mapping):
        parts = dict(state)
    else:
        listed = [state] if isinstance(state, torch.nn.Module | torch.optim.Optimizer) else list(state)
        modules = [part for part in listed if isinstance(part, torch.nn.Module)]
        if len(modules) > 1:
            raise TypeError("several modules in state: give a dict, whose keys come before their parameters' names")
        parts = {"" if isinstance(part, torch.nn.Module) else f"optimizer{i}": part for i, part in enumerate(listed)}
    for part in parts.values():
        if not isinstance(part, torch.nn.Module | torch.optim.Optimizer):
            raise TypeError(f"state consists of modules and optimizers, not of {type(part).__name__}")
    return parts


def _check_on_tpu(named: Iterable[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in named:
        if tensor.device.type != "tpu":
            raise ValueError(
                f"{name} is on {tensor.device}: move the module to tpu first, or, without its data, by "
                f"torch.tpu.aot.without_data(module)"
            )


# ---- leaving no traces ----


@contextlib.contextmanager
def _undone(state: Mapping[str, Any], device: int):
    """Puts back what running a function changes besides storages: gradients, optimizers' state, random numbers."""
    parameters = [p for part in state.values() if isinstance(part, torch.nn.Module) for p in part.parameters()]
    gradients = [p.grad for p in parameters]
    optimizers = [part for part in state.values() if isinstance(part, torch.optim.Optimizer)]

    def copy(value: Any) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) and value.device.type != "tpu" else value

    states = [{p: {k: copy(v) for k, v in s.items()} for p, s in o.state.items()} for o in optimizers]
    random, tpu_random = torch.get_rng_state(), torch.tpu.get_rng_state(device)
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for optimizer, before in zip(optimizers, states, strict=True):
            optimizer.state.clear()
            optimizer.state.update(before)
        torch.set_rng_state(random)
        torch.tpu.set_rng_state(tpu_random, device)


# ---- capturing ----


def _storage_address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _detached(tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, tree)


def _record(run: Callable[[], Any], named: list[tuple[str, torch.Tensor]], device: int) -> Program:
    """Run it once in a capture whose first arguments are the named tensors."""
    arguments = {}
    for name, tensor in named:
        address = _storage_address(tensor)
        if address != 0 and address not in arguments:
            arguments[address] = (name, tensor)
    capture = _C.Capture(device, [tensor for _, tensor in arguments.values()])
    try:
        result = _detached(run())  # without what autograd keeps for a backward pass
        gc.collect()  # what nobody reaches any more is no result
        returned = [(name, t) for name, t in _named_leaves("result", result) if t.device.type == "tpu"]
        captured = capture.end([tensor for _, tensor in returned])
    finally:
        capture.cancel()
    names = {address: name for address, (name, _) in arguments.items()}
    results = {_storage_address(tensor): name for name, tensor in reversed(returned)}
    return _describe(captured, names, results)


def _describe(captured: Any, argument_names: Mapping[int, str], result_names: Mapping[int, str]) -> Program:
    arguments, results, aliases = [], [], {}
    for at, (address, dtype, dims, alias) in enumerate(captured.arguments):
        name = argument_names.get(address) or (f"constant.{at}" if address else f"{NUMBERS}.{dtype}")
        arguments.append(Value(name, dtype, tuple(dims)))
        if alias >= 0:
            aliases[at] = alias
    for at, (address, dtype, dims, _) in enumerate(captured.results):
        name = result_names.get(address) or argument_names.get(address) or f"left.{at}"
        results.append(Value(name, dtype, tuple(dims)))
    return Program(tuple(arguments), tuple(results), aliases, captured.operators, captured)


def _capture_function(function: Callable, args: Sequence, kwargs: Mapping, state: Any) -> Program:
    parts = _as_state(state)
    _check_on_tpu(_state_tensors({k: v for k, v in parts.items() if isinstance(v, torch.nn.Module)}))
    device = torch.tpu.current_device()
    args, kwargs = _absent_arguments((tuple(args), dict(kwargs)))
    inputs = _named_leaves("args", _bind(function, args, kwargs))
    with _undone(parts, device):
        before = len(list(_state_tensors(parts)))
        program = _record(lambda: function(*args, **kwargs), [*_state_tensors(parts), *inputs], device)
        if len(list(_state_tensors(parts))) > before:  # an optimizer made its state: what follows is its steady step
            program = _record(lambda: function(*args, **kwargs), [*_state_tensors(parts), *inputs], device)
    return program


def _capture_module(module: torch.nn.Module, args: Sequence, kwargs: Mapping) -> Program:
    device = torch.tpu.current_device()
    made: dict[int, torch.Tensor] = {}
    tensors = {}
    for name, tensor in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        tensors[name] = made.setdefault(id(tensor), absent(tensor.detach()))
    args, kwargs = _absent_arguments((tuple(args), dict(kwargs)))
    inputs = _named_leaves("args", _bind(module.forward, args, kwargs))

    def run() -> Any:
        with torch.no_grad():
            return torch.func.functional_call(module, tensors, args, kwargs, tie_weights=False)

    with _undone({}, device):
        return _record(run, [*tensors.items(), *inputs], device)


def _cond(predicate: Any, if_true: Callable, if_false: Callable, operands: Sequence = ()) -> Any:
    """``torch.cond`` within a captured program: a branch, or both and of each tensor the elements of one.

    That is for branches that draw random numbers: they have no other effects, so both may run.
    """
    if not isinstance(predicate, torch.Tensor):
        return (if_true if predicate else if_false)(*operands)
    try:
        return control.cond_on_device(predicate, if_true, if_false, operands)
    except control.NotOnDevice:
        return pytree.tree_map(
            lambda a, b: torch.where(predicate, a, b) if isinstance(a, torch.Tensor) else a,
            if_true(*operands),
            if_false(*operands),
        )


def _while_loop(condition: Callable, body: Callable, carried: Sequence, others: Sequence = ()) -> Any:
    """``while_loop`` within a captured program."""
    try:
        return control.while_loop_on_device(condition, body, carried, others)
    except control.NotOnDevice as error:
        raise RuntimeError(
            f"the program has a while_loop that has no form ahead of time: {error}. "
            "A loop of a fixed number of rounds has one"
        ) from error


def move_graphs(module: torch.nn.Module) -> torch.nn.Module:
    """Change an exported program's graphs, in place, so that they can be captured.

    They make their tensors on tpu, and ``torch.cond`` and ``while_loop`` decide there; ``scan`` is a loop.
    """
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            if node.target is torch.ops.aten._assert_tensor_metadata.default:  # it compares devices
                part.graph.erase_node(node)
                continue
            if node.target is torch.ops.higher_order.cond:
                node.target = _cond
            if node.target is torch.ops.higher_order.scan:
                node.target = control.scan
            if node.target is torch.ops.higher_order.while_loop:
                node.target = _while_loop
            if node.target is torch.ops.higher_order.wrap_with_autocast:  # its first argument is a kind of device
                node.args = ("tpu", *node.args[1:])
            move = lambda leaf: torch.device("tpu") if isinstance(leaf, torch.device) else leaf  # noqa: E731
            node.args, node.kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), move)
        part.recompile()
    return module


def capture(target: Any, args: Sequence = (), kwargs: Mapping | None = None, *, state: Any = ()) -> Program:
    """Capture what a module or function does with arguments of these sizes as one program; nothing is computed.

    Parameters
    ----------
    target
        A module, whose forward pass without gradients is captured; it may be on any device, ``meta`` too, and keeps its
        parameters. Or an exported program. Or a function of tensors on tpu, such as a training step.
    args, kwargs
        The arguments. Of tensors, on any device, only sizes, strides and dtype count.
    state
        The modules and optimizers that a function works on: a sequence, or a dict whose keys are put before the names
        of their tensors. Modules must be on tpu (``without_data`` moves them without memory). An optimizer that makes
        its state at its first step is captured at its second. Afterwards tensors, gradients and optimizers are as
        before.

    Returns
    -------
    Program
        Its arguments are, in order, the parameters and buffers, the optimizers' state (``exp_avg.<parameter>``), the
        inputs (``args.<name>``), and what else it reads.

    Raises
    ------
    RuntimeError
        If the function needs a value on the host: ``item()``, ``print``, a branch on a tensor.
    """
    if isinstance(target, torch.export.ExportedProgram):
        target = move_graphs(target.module())
    if isinstance(target, torch.nn.Module):
        return _capture_module(target, args, kwargs or {})
    if not callable(target):
        raise TypeError(f"expected a module, an exported program or a function, got {type(target).__name__}")
    return _capture_function(target, args, kwargs or {}, state)
