"""``torch.tpu.export``: exported programs as StableHLO, for running without PyTorch and without Python.

>>> exported = torch.export.export(model, (tokens,))
>>> torch.tpu.export.to_stablehlo(exported).save("model")

It runs by ``ttpu run``, in C by ``include/ttpu.h``, and again by ``torch.tpu.export.load`` (docs/export.md).
"""

import copy
import dataclasses
import itertools
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

import torch
from torch_tpu import _C
from torch_tpu._loader import __version__
from torch_tpu.aot.program import absent, move_graphs

__all__ = ["Model", "load", "to_stablehlo"]

PROGRAM, TEXT, WEIGHTS, MANIFEST = "program.mlirbc", "program.mlir", "weights.safetensors", "manifest.json"
_RANDOM = "random"  # the argument in which random operators have their seed and offsets


@dataclasses.dataclass
class Model:
    """A program with its weights, made by ``to_stablehlo`` or ``load``.

    Attributes
    ----------
    text : str
        The program as StableHLO, for people.
    bytecode : bytes
        The same as a portable artifact: MLIR bytecode of VHLO, which StableHLO's readers of that version or a newer
        one take.
    weights : dict of str to Tensor
        Parameters, buffers and constants by name, on the CPU: those arguments of the program that are no inputs.
    manifest : dict
        What the arguments and results are, as docs/export.md says.
    """

    text: str = dataclasses.field(repr=False)
    bytecode: bytes = dataclasses.field(repr=False)
    weights: dict[str, torch.Tensor] = dataclasses.field(repr=False)
    manifest: dict[str, Any]
    _running: Any = dataclasses.field(default=None, repr=False)

    @property
    def inputs(self) -> list[dict]:
        """Name, dtype and shape of each input, in order."""
        return [a for a in self.manifest["arguments"] if a["role"] == "input"]

    @property
    def outputs(self) -> list[dict]:
        """Name, dtype and shape of each output, in order."""
        return [r for r in self.manifest["results"] if r["role"] == "output"]

    def save(self, path: str | os.PathLike) -> None:
        """Write a folder: ``manifest.json``, ``program.mlirbc``, ``program.mlir`` and ``weights.safetensors``.

        An existing model there is replaced; a folder of anything else is an error.
        """
        from safetensors.torch import save_file

        folder = pathlib.Path(path)
        if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
            raise FileExistsError(f"{folder} is a folder of something else; name a new one, or an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.weights, folder / WEIGHTS)
        (folder / PROGRAM).write_bytes(self.bytecode)
        (folder / TEXT).write_text(self.text)
        (folder / MANIFEST).write_text(json.dumps(self.manifest, indent=1, ensure_ascii=False) + "\n")

    def __call__(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Run on tensors by position or by the inputs' names; gives the outputs by name, on the first input's device.

        State, the buffers that the program writes, is kept from call to call; the first call compiles.

        Raises
        ------
        ValueError, RuntimeError
            If an input is missing, unknown, given twice, or of another dtype or shape.
        """
        names = [value["name"] for value in self.inputs]
        if len(args) > len(names):
            raise TypeError(f"{len(args)} inputs were given; the model has {len(names)}: {', '.join(names) or 'none'}")
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise TypeError(f"the input {min(twice)!r} is given twice")
        given |= kwargs
        outputs = self._run().run(given)
        device = next((t.device for t in given.values()), torch.device("cpu"))
        return {name: tensor.to(device) for name, tensor in outputs.items()}

    def reset(self) -> None:
        """Put the state back to what was exported, and random numbers to the beginning of their sequence."""
        self._run().reset()

    def manual_seed(self, seed: int) -> None:
        """Begin the sequence of random numbers of a seed; it is 0 before."""
        self._run().seed(seed)

    def _run(self) -> Any:
        if self._running is None:
            with tempfile.TemporaryDirectory() as folder:
                self.save(folder)
                self._running = _C.Model(folder, torch.tpu.current_device())
        return self._running


def load(path: str | os.PathLike) -> Model:
    """Read a folder that ``Model.save`` wrote.

    Raises
    ------
    FileNotFoundError
        If it is no saved model.
    ValueError
        If it is one of a version that is not known here.
    """
    from safetensors.torch import load_file

    folder = pathlib.Path(path)
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"{folder} is no saved model: it has no {MANIFEST}")
    manifest = json.loads((folder / MANIFEST).read_text())
    if manifest.get("format") != "ttpu model" or manifest.get("version") != 1:
        raise ValueError(
            f"{folder / MANIFEST}: format {manifest.get('format')!r} of version {manifest.get('version')!r};"
            f" expected 'ttpu model' of version 1"
        )
    text = (folder / TEXT).read_text() if (folder / TEXT).is_file() else ""
    weights = load_file(folder / manifest["weights"])
    return Model(text, (folder / manifest["program"]).read_bytes(), weights, manifest)


# ---- arguments -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Argument:
    """A placeholder of the exported graph that is a tensor."""

    name: str
    role: str
    like: torch.Tensor  # the weight, or the example input
    tensor: torch.Tensor  # on tpu without data, row-major: the program's argument
    seen: torch.Tensor | None = None  # what the graph gets: the same with the strides that it was exported for
    version: int = 0

    def open(self) -> None:
        """Within the capture: make what the graph gets."""
        self.seen = self.tensor
        dense = torch.empty_like(self.like, device="tpu")  # with these strides, unless they overlap or have gaps
        if not dense.is_contiguous():
            self.seen = dense.copy_(self.tensor)
        self.version = self.seen._version

    def close(self) -> None:
        """Within the capture: what was written to the one goes to the other."""
        if self.seen is not self.tensor and self.seen._version != self.version:
            self.tensor.copy_(self.seen)


def _check_tensor(name: str, tensor: torch.Tensor) -> None:
    from torch._subclasses.fake_tensor import is_fake

    if is_fake(tensor) or tensor.device.type == "meta":
        raise ValueError(f"{name} has no data (it is a fake or meta tensor): export a model with its weights loaded")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.dtype is torch.complex32:
        kind = tensor.layout if tensor.layout is not torch.strided else tensor.dtype
        raise TypeError(f"{name} is of {kind}, which StableHLO does not have")


def _make_argument(name: str, role: str, like: torch.Tensor) -> _Argument:
    if role == "weight":
        _check_tensor(name, like)
    dense = torch.empty(like.size(), dtype=like.dtype, device="meta")
    return _Argument(name, role, like.detach(), absent(dense))


def _weight(exported: torch.export.ExportedProgram, spec: Any) -> torch.Tensor:
    found = exported.state_dict.get(spec.target)
    return exported.constants[spec.target] if found is None else found


_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _arguments(exported: torch.export.ExportedProgram, inputs: Sequence) -> tuple[list[_Argument], list]:
    """The program's arguments, and for each placeholder the one that it is, or its value if it is no tensor.

    Tensors that share all of their memory, as tied weights do, are one argument.
    """
    arguments: list[_Argument] = []
    placeholders: list = []
    tied: dict[tuple, _Argument] = {}
    inputs = iter(inputs)
    for spec in exported.graph_signature.input_specs:
        if spec.kind in _WEIGHTS:
            value = _weight(exported, spec)
            key = (value.untyped_storage()._cdata, value.storage_offset(), value.size(), value.stride(), value.dtype)
            if key not in tied:
                tied[key] = _make_argument(spec.target, "weight", value)
                arguments.append(tied[key])
            placeholders.append(tied[key])
        elif spec.kind == InputKind.USER_INPUT:
            value = next(inputs)
            if isinstance(value, torch.Tensor):
                arguments.append(_make_argument(spec.arg.name, "input", value))
                value = arguments[-1]
            placeholders.append(value)
        else:
            raise TypeError(
                f"the program takes {spec.arg.name}, a {spec.kind.name.lower()}: StableHLO has nothing for objects and "
                f"effect tokens. Export a model without them"
            )
    return arguments, placeholders


# ---- results ---------------------------------------------------------------------------------------------------------


def _output_names(exported: torch.export.ExportedProgram, count: int) -> list[str]:
    """``output`` for a single one, ``output.0`` in a tuple, the keys' own names in a dict or a dataclass."""
    spec = exported.call_spec.out_spec
    tree = pytree.tree_unflatten(list(range(count)), spec)
    paths: list = [None] * count
    for path, leaf in pytree.tree_flatten_with_path(tree)[0]:
        paths[leaf] = path
    names = []
    for path in paths:
        keys = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
        if not path or isinstance(path[0], pytree.SequenceKey):
            keys.insert(0, "output")
        names.append(".".join(keys))
    return names


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it where it is taken."""
    return next(n for n in itertools.chain([name], (f"{name}.{i}" for i in itertools.count(1))) if n not in taken)


@dataclasses.dataclass
class _Results:
    """What running the graph gave: tensors, and outputs that are none."""

    outputs: dict[str, torch.Tensor]
    constants: dict[str, Any]


def _run_graph(
    exported: torch.export.ExportedProgram, graph: torch.nn.Module, arguments: list[_Argument], placeholders: list
) -> _Results:
    """Within the capture: run the graph, and make what it returns dense tensors of their own."""
    for argument in arguments:
        argument.open()
    values = graph(*(p.seen if isinstance(p, _Argument) else p for p in placeholders))
    by_name = {argument.name: argument for argument in arguments}
    leaves, results = [], _Results({}, {})
    for spec, value in zip(exported.graph_signature.output_specs, values, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            by_name[spec.target].seen.copy_(value)
        elif spec.kind == OutputKind.USER_OUTPUT:
            leaves.append(value)
        else:
            raise TypeError(f"the program gives a {spec.kind.name.lower()}; export the forward pass alone")
    for name, value in zip(_output_names(exported, len(leaves)), leaves, strict=True):
        name = _free_name(name, results.outputs.keys() | results.constants.keys())
        if isinstance(value, torch.Tensor):
            results.outputs[name] = value.detach().to("tpu").clone(memory_format=torch.contiguous_format)
        else:
            results.constants[name] = value
    for argument in arguments:
        argument.close()
    return results


# ---- the manifest ----------------------------------------------------------------------------------------------------


def _value(name: str, role: str, like: torch.Tensor) -> dict:
    return {"name": name, "role": role, "dtype": str(like.dtype).removeprefix("torch."), "shape": list(like.shape)}


def _dynamic_sizes(exported: torch.export.ExportedProgram) -> dict[str, list[int]]:
    """Which dimensions of which inputs were exported as dynamic, and are now those of the example."""
    found = {}
    names = set(exported.graph_signature.user_inputs)
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name in names and isinstance(value, torch.Tensor):
            dims = [i for i, size in enumerate(value.shape) if isinstance(size, torch.SymInt)]
            if dims:
                found[node.name] = dims
    return found


def _random(captured: Any, drawn: int) -> tuple[dict | None, torch.Tensor | None]:
    """Where the program's random operators have their seed and offset, and that vector with both from zero on."""
    slots = captured.random_slots
    if drawn == 0:  # dropout of nothing, as in attention
        return None, None
    numbers = list(captured.i64s)
    first = numbers[slots[0] + 1]
    for slot in slots:
        numbers[slot] = 0
        numbers[slot + 1] -= first
    return {"slots": slots, "drawn": drawn}, torch.tensor(numbers)


def _random_offset(device: int) -> int:
    """The generator's offset, in counters of four numbers."""
    state = torch.tpu.get_rng_state(device)
    return (int(state[8:16].view(torch.int64).item()) + 3) // 4


# ---- the whole -------------------------------------------------------------------------------------------------------


def _example(exported: torch.export.ExportedProgram, args: Sequence | None, kwargs: Mapping | None) -> list:
    """The inputs as a flat list, checked against what was exported."""
    if args is None and kwargs is None:
        if exported.example_inputs is None:
            raise ValueError("the exported program has no example inputs: give args and kwargs")
        args, kwargs = exported.example_inputs
    return exported._get_flat_args_with_check(tuple(args or ()), dict(kwargs or {}))[0]


def _check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata maps texts to texts; {key!r} is {type(value).__name__}")
    return dict(metadata or {})


def to_stablehlo(
    exported: torch.export.ExportedProgram,
    args: Sequence | None = None,
    kwargs: Mapping | None = None,
    *,
    metadata: Mapping[str, str] | None = None,
) -> Model:
    """Make an exported program one StableHLO program on tpu, with its weights beside it; nothing is computed.

    Parameters
    ----------
    exported
        What ``torch.export.export`` gives, of a model on any device. Sizes that it leaves open become those of the
        example inputs, and the result runs on these alone: one for each is to be made where several are needed.
    args, kwargs
        Other example inputs. By default those that the program was exported with.
    metadata
        Texts that are saved with it, such as a vocabulary.

    Returns
    -------
    Model
        Its inputs are named as the exported program's (``exported.graph_signature.user_inputs``), its outputs
        ``output``, ``output.0``, or by the keys of a dict or dataclass; an input that the program writes is an output
        of the same name. Buffers that it writes are its state.

    Raises
    ------
    ValueError
        If weights have no data, or the inputs do not fit what was exported.
    TypeError
        If it takes or gives what StableHLO does not have: objects, effect tokens, sparse tensors.
    RuntimeError
        If it needs a value on the host while it runs (``item()``, ``nonzero()``), with the operator's name.
    """
    if not isinstance(exported, torch.export.ExportedProgram):
        raise TypeError(f"expected an exported program, got {type(exported).__name__}: call torch.export.export first")
    texts = _check_metadata(metadata)
    arguments, placeholders = _arguments(exported, _example(exported, args, kwargs))
    graph = move_graphs(copy.deepcopy(exported.graph_module))
    device = torch.tpu.current_device()
    random, before = torch.tpu.get_rng_state(device), _random_offset(device)
    capture = _C.Capture(device, [argument.tensor for argument in arguments])
    try:
        with torch.no_grad():
            results = _run_graph(exported, graph, arguments, placeholders)
        drawn = _random_offset(device) - before
        captured = capture.end(list(results.outputs.values()))
    finally:
        capture.cancel()
        torch.tpu.set_rng_state(random, device)
    return _make_model(exported, captured, arguments, results, drawn, texts)


def _places(captured: Any, returned: Iterable[torch.Tensor]) -> Callable[[torch.Tensor], int | None]:
    """Where a tensor is among the captured results; None: it was not written.

    Results know the addresses of their storages. Those without elements have none, and stand in the order in which they
    were returned.
    """
    addresses = [address or 0 for address, *_ in captured.results]
    places = {address: at for at, address in enumerate(addresses) if address}
    empty = iter(at for at, address in enumerate(addresses) if not address)
    for tensor in returned:
        if tensor.numel() == 0:
            places[id(tensor)] = next(empty)

    def place(tensor: torch.Tensor) -> int | None:
        return places.get(tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor))

    return place


def _make_model(
    exported, captured: Any, arguments: list[_Argument], results: _Results, drawn: int, metadata: dict[str, str]
) -> Model:
    for at, (address, *_) in enumerate(captured.arguments[len(arguments) :]):
        if address:
            raise RuntimeError(f"argument {len(arguments) + at} of the captured program is no input and no weight")
    place = _places(captured, results.outputs.values())
    written = [argument for argument in arguments if place(argument.tensor) is not None]
    states = [argument for argument in written if argument.role == "weight"]
    outputs = dict(results.outputs)
    for argument in written:
        if argument.role == "input":
            outputs[_free_name(argument.name, outputs)] = argument.tensor
    for argument in states:
        argument.role = "state"
    wanted = [(place(t), list(t.shape)) for t in [*outputs.values(), *(a.tensor for a in states)]]
    text, bytecode = captured.exported(wanted, [arguments.index(a) for a in states], drawn > 0)
    random, numbers = _random(captured, drawn)
    weights = {a.name: a.like.cpu().contiguous().clone() for a in arguments if a.role != "input"}
    listed = [_value(a.name, a.role, a.like) for a in arguments]
    if random is not None:
        weights[_RANDOM] = numbers
        listed.append(_value(_RANDOM, "random", numbers))
    manifest = {
        "format": "ttpu model",
        "version": 1,
        "producer": f"ttpu {__version__}, PyTorch {torch.__version__}",
        "program": PROGRAM,
        "weights": WEIGHTS,
        "arguments": listed,
        "results": [_value(name, "output", t) for name, t in outputs.items()]
        + [_value(a.name, "state", a.like) for a in states],
        "constants": results.constants,
        "specialized": _dynamic_sizes(exported),
        "random": random,
        "metadata": metadata,
    }
    return Model(text, bytecode, weights, manifest)
