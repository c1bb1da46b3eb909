"""What the sweep does with one model: the same on the CPU and on tpu, and whether both agree.

Tolerances follow from the dtype alone. In f32 a tensor agrees if no element differs by more than `SLACK` units in the
last place of its largest one, in bf16 by more than one such unit. Where one differs by more, the CPU is asked how
sure it is: in a wider dtype, with weights changed in their last bits, and with other ones chosen of equal values. tpu
may be `WORSE` times as far from the CPU's result as these are.
"""

import contextlib
import copy
import dataclasses
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.attention
from torch._dynamo.utils import counters as dynamo_counters
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import torch

SLACK = 4096
WORSE = 4
FLOOR = 4e-3  # of the largest of all: what is zero but for rounding, as a key's bias's gradient, has a unit too
SHAKES = 5
SHAKEN_UNITS = 8
RATE = 1e-3
NEW_TOKENS = 6

GENERATIONS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "static cache": {"do_sample": False, "cache_implementation": "static", "disable_compile": True},
    "beam": {"do_sample": False, "num_beams": 2},
    "sampling": {"do_sample": True, "top_k": 20},
}


@dataclasses.dataclass
class Case:
    """A model on the CPU with what to call it with.

    Attributes
    ----------
    model
        With weights, in training mode or not.
    batch
        Keyword arguments of a call, on the CPU.
    labels
        What the model's own loss wants, or None: then the loss is made from the outputs.
    generates
        Whether `generate` is tried.
    notes
        What was built: the class, the plan it was shrunk with, the number of parameters.
    """

    model: torch.nn.Module
    batch: dict[str, Any]
    labels: torch.Tensor | None = None
    generates: bool = False
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)


class Disagreement(Exception):
    """Both devices have a result, and they differ."""


class NotOnTheCPU(Exception):
    """The model does not run on the CPU in this dtype, so there is nothing to compare with."""


class HostRandomness(TorchDispatchMode):
    """Random operators draw on the CPU whatever the device, so that two devices draw the same numbers."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or "attention" in func.name():
            return func(*args, **kwargs)
        if func == torch.ops.aten.native_dropout.default and args[0].device.type != "cpu":
            return dropout_as_on_cpu(*args)
        in_place = func.name().split("::")[1].split(".")[0].endswith("_")
        if in_place:  # numbers are drawn in the order of memory, which the devices may choose differently
            drawn = func(torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:], **kwargs)
            return args[0].copy_(drawn)
        devices = []

        def to_host(item: Any) -> Any:
            if torch.is_tensor(item) and item.device.type != "cpu":
                devices.append(item.device)
                return item.cpu()
            return item

        device = kwargs.get("device")
        if device is not None and torch.device(device).type != "cpu":
            devices.append(torch.device(device))
            kwargs = {**kwargs, "device": "cpu"}
        drawn = func(*tree_map(to_host, args), **tree_map(to_host, kwargs))
        if not devices:
            return drawn
        return tree_map(lambda item: item.to(devices[0]) if torch.is_tensor(item) else item, drawn)


class LowestFirst(TorchDispatchMode):
    """Of equal values the first ones are chosen. PyTorch leaves open which, and the CPU and tpu choose differently."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func != torch.ops.aten.topk.default:
            return func(*args, **kwargs or {})

        def topk(value: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True):
            values, indices = value.sort(dim=dim, descending=largest, stable=True)
            return values.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()

        return topk(*args, **kwargs or {})


def dropout_as_on_cpu(value: torch.Tensor, rate: float, training: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Dropout with the mask that `torch.dropout` draws on the CPU, where it does not go through `native_dropout`."""
    mask = torch.empty(value.shape, dtype=value.dtype).bernoulli_(1 - rate).to(value.device)
    return value * mask / (1 - rate), mask.bool()


def tensors(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of an output with their paths; caches are left out."""
    if depth > 6 or value is None or "Cache" in type(value).__name__:
        return
    if torch.is_tensor(value):
        yield path or "output", value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors(item, f"{path}[{index}]", depth + 1)
    elif dataclasses.is_dataclass(value):
        yield from tensors(vars(value), path, depth + 1)


def make_loss(output: Any) -> torch.Tensor:
    """The model's own loss, else the mean squares of all its outputs that have a gradient."""
    own = output.get("loss") if isinstance(output, dict) else None
    if torch.is_tensor(own) and own.numel() == 1 and own.requires_grad:
        return own.reshape(())
    parts = [item.float().square().mean() for _, item in tensors(output) if item.requires_grad and item.numel()]
    if not parts:
        raise ValueError("no output has a gradient")
    return torch.stack(parts).sum()


def randomize(model: torch.nn.Module) -> None:
    """Move every weight a little off its initial value: branches that start at zero would hide what is in them."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point():
                continue
            if not parameter.isfinite().all() or (parameter.numel() and parameter.abs().max() > 1e4):
                parameter.zero_()
            parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * 0.02)


def without_onednn(model: torch.nn.Module, dtype: torch.dtype) -> contextlib.AbstractContextManager:
    """Without oneDNN where what the CPU computes with it is wrong (PyTorch 2.13).

    In bf16 the gradient of a three-dimensional convolution's weights is made from memory that nothing was written to
    where the kernel is deeper than the input, which takes padding.
    """
    wrong = dtype == torch.bfloat16 and any(
        isinstance(module, torch.nn.Conv3d) and module.padding not in ("valid", (0, 0, 0)) for module in model.modules()
    )
    return torch.backends.mkldnn.flags(enabled=False) if wrong else contextlib.nullcontext()


def shake(model: torch.nn.Module, seed: int) -> None:
    """Change every weight by a few units in the last place: about what the rounding of all operations amounts to."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                unit = SHAKEN_UNITS * torch.finfo(parameter.dtype).eps
                parameter.mul_(1 + unit * torch.randn(parameter.shape, generator=generator).to(parameter.dtype))


def moved(batch: Any, device: str, dtype: torch.dtype) -> Any:
    """A batch on a device, its floating-point values in a dtype."""

    def move(item: Any) -> Any:
        if not torch.is_tensor(item):
            return item
        return item.to(device, dtype) if item.is_floating_point() else item.to(device)

    return tree_map(move, batch)


@dataclasses.dataclass
class Result:
    """What one device gave: outputs, loss, gradients and the weights after a step, all brought to the CPU."""

    outputs: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    weights: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)


def host(value: torch.Tensor) -> torch.Tensor:
    return value.detach().cpu().clone()


def forward(model: torch.nn.Module, batch: dict[str, Any], call: Callable | None = None) -> Result:
    """A call in evaluation, of the model or of what it was compiled to."""
    model.eval()
    torch.manual_seed(0)
    with torch.no_grad():
        output = (model if call is None else call)(**batch)
    return Result({name: host(value) for name, value in tensors(output)})


def train(model: torch.nn.Module, batch: dict[str, Any], training: bool, call: Callable | None = None) -> Result:
    """Forward, loss, backward and a step of AdamW."""
    torch.manual_seed(0)
    model.train(training)
    model.zero_grad()
    output = (model if call is None else call)(**batch)
    loss = make_loss(output)
    loss.backward()
    result = Result({"loss": host(loss), **{name: host(value) for name, value in tensors(output)}})
    parameters = list(model.named_parameters())
    result.gradients = {name: host(value.grad) for name, value in parameters if value.grad is not None}
    # With a large eps the step is a smooth function of the gradient: a rounding error does not become a sign.
    torch.optim.AdamW(model.parameters(), lr=RATE, eps=1e-3).step()
    result.weights = {name: host(value) for name, value in [*parameters, *model.named_buffers()]}
    return result


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, where both are finite."""
    difference = (actual.double() - expected.double()).abs()
    difference = difference[expected.isfinite() & actual.isfinite()]
    return difference.max().item() if difference.numel() else 0.0


def largest(value: torch.Tensor) -> float:
    finite = value[value.isfinite()].double().abs()
    return finite.max().item() if finite.numel() else 0.0


def same_kind(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Sizes, dtype, and where values are not finite."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise Disagreement(
            f"{name}: {actual.dtype} {list(actual.shape)} on tpu, {expected.dtype} {list(expected.shape)} on the CPU"
        )
    if expected.is_floating_point() and not torch.equal(actual.isnan(), expected.isnan()):
        raise Disagreement(
            f"{name}: NaN in {int(actual.isnan().sum())} elements, {int(expected.isnan().sum())} on the CPU"
        )


def real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value) if value.is_complex() else value


def compare(
    actual: dict[str, torch.Tensor],
    expected: dict[str, torch.Tensor],
    others: Callable[[], list[dict[str, torch.Tensor]]],
    absolute: float = 0.0,
) -> None:
    """Raise `Disagreement` for the worst tensor that is further from the CPU's than the dtype explains.

    Parameters
    ----------
    actual, expected
        By name, from tpu and from the CPU.
    others
        Gives the same tensors from other runs on the CPU that are as good; called only when in doubt.
    absolute
        A difference that is always accepted.
    """
    if actual.keys() != expected.keys():
        raise Disagreement(f"only on one device: {sorted(actual.keys() ^ expected.keys())[:5]}")
    whole = max((largest(real(value)) for value in expected.values() if value.is_floating_point()), default=0.0)
    doubtful = {}
    for name, reference in expected.items():
        value, reference = real(actual[name]), real(reference)
        same_kind(name, value, reference)
        if not reference.is_floating_point():
            if not torch.equal(value, reference):
                doubtful[name] = (distance(value, reference), 0.0)
            continue
        unit = torch.finfo(reference.dtype).eps
        scale = max(largest(reference), FLOOR * whole)
        limit = (SLACK * unit if reference.dtype in (torch.float32, torch.float64) else unit) * scale + absolute
        if (far := distance(value, reference)) > limit:
            doubtful[name] = (far, limit)
    if doubtful:
        judge(doubtful, actual, expected, others(), absolute)


def judge(doubtful: dict, actual: dict, expected: dict, others: list[dict], absolute: float) -> None:
    """Of the tensors that differ, those that are one of the CPU's other results, or about as uncertain, are fine.

    How uncertain they are is how far the CPU's other results are: in a wider dtype, of weights changed in their last
    bits, with other ones chosen of equal values. A ReLU at zero or a choice between two equal experts makes a gradient
    jump by more than a rounding error.
    """
    for name, (far, limit) in sorted(doubtful.items(), key=lambda item: -item[1][0]):
        reference = real(expected[name])
        fitting = [real(other[name]) for other in others if name in other]
        fitting = [other for other in fitting if other.shape == reference.shape]
        own = max((distance(reference, other) for other in fitting), default=0.0)
        if any(distance(real(actual[name]), other) <= limit for other in fitting):
            continue
        if own == 0.0 or far > WORSE * own + limit:
            raise Disagreement(
                f"{name}: differs by {far:.3g}; {limit:.3g} is allowed, the CPU's own results differ by {own:.3g}"
                f" (largest {largest(reference):.3g})"
            )


class Trial:
    """One model on both devices. Every step's outcome goes into `steps`: "ok" or what went wrong."""

    def __init__(self, case: Case, dtype: torch.dtype, compiled: bool) -> None:
        self.case = case
        self.dtype = dtype
        self.compiled = compiled
        self.steps: dict[str, str] = {}
        self.random = False
        self.training = True

    def batch(self, device: str, dtype: torch.dtype | None = None, labels: bool = True) -> dict[str, Any]:
        batch = dict(self.case.batch)
        if labels and self.case.labels is not None:
            batch["labels"] = self.case.labels
        return moved(batch, device, dtype or self.dtype)

    def randomness(self) -> contextlib.AbstractContextManager:
        return HostRandomness() if self.random else contextlib.nullcontext()

    def on_cpu(
        self, work: str, dtype: torch.dtype | None = None, shaken: int | None = None, traced: bool = False
    ) -> Result:
        """The CPU's result; `traced`: of what Dynamo and AOTAutograd make of the model, run eagerly."""
        dtype = dtype or self.dtype
        model = copy.deepcopy(self.case.model).to(dtype)
        if shaken is not None:
            shake(model, shaken)
        call = torch.compile(model, backend="aot_eager", dynamic=False) if traced else model
        # The CPU's fused attention has wrong gradients where a mask of the least finite number covers a row, as it does
        # padding in Transformers (PyTorch 2.13); written out, it has the right ones.
        math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
        with self.randomness(), math, without_onednn(model, dtype):
            if work == "forward":
                return forward(model, self.batch("cpu", dtype), call)
            return train(model, self.batch("cpu", dtype), self.training, call)

    def others(self, work: str, what: str) -> Callable[[], list[dict[str, torch.Tensor]]]:
        """The same on the CPU: in a wider dtype, if the model runs in it, with shaken weights, and `LowestFirst`.

        For a compiled model first of all what Dynamo and AOTAutograd make of it, which is not always the same.
        """

        def run() -> list[dict[str, torch.Tensor]]:
            results = []
            if self.compiled:
                with contextlib.suppress(Exception):
                    results.append(getattr(self.on_cpu(work, traced=True), what))
            wide = torch.float64 if self.dtype == torch.float32 else torch.float32
            for dtype, seed in ((wide, None), *((self.dtype, seed) for seed in range(SHAKES))):
                with contextlib.suppress(Exception):  # many a model has f32 written into it
                    results.append(getattr(self.on_cpu(work, dtype, seed), what))
            with LowestFirst():
                results.append(getattr(self.on_cpu(work), what))
            return results

        return run

    def probe(self) -> dict[str, Result]:
        """Run on the CPU alone: what it gives, whether it can train, and whether it draws random numbers.

        A model that draws runs again with random numbers that tpu can have too.
        """
        fresh = torch.Generator().manual_seed(0).get_state()
        try:
            results = {"forward": self.on_cpu("forward")}
        except Exception as error:
            raise NotOnTheCPU(describe(error)) from error
        drew = not torch.equal(torch.get_rng_state(), fresh)
        for self.training in (True, False):
            try:
                results["train"] = self.on_cpu("train")
            except Exception as error:
                self.steps["backward"] = "not on the CPU: " + describe(error)
                continue
            self.steps.clear()
            drew |= not torch.equal(torch.get_rng_state(), fresh)
            break
        if drew:
            self.random = True
            try:
                results = {work: self.on_cpu(work) for work in results}
            except (
                Exception
            ) as error:  # the CPU's fused linear layer takes mixed dtypes, its matmul as any device's not
                raise NotOnTheCPU(describe(error)) from error
        return results

    def attempt(self, name: str, action: Callable[[], None]) -> bool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                action()
        except Disagreement as error:
            self.steps[name] = "differs: " + str(error)
        except Exception as error:
            self.steps[name] = "fails: " + describe(error)
        else:
            self.steps[name] = "ok"
        return self.steps[name] == "ok"

    def fresh(self, device: str) -> torch.nn.Module:
        """A copy of the model for each piece of work, on both devices: some keep what an earlier call made of them."""
        return copy.deepcopy(self.case.model).to(device)

    def called(self, model: torch.nn.Module) -> Callable:
        return torch.compile(model, dynamic=False) if self.compiled else model

    def run(self) -> dict[str, str]:
        self.case.model.to(self.dtype)
        expected = self.probe()
        if self.compiled and self.random:
            raise NotOnTheCPU("draws random numbers, and PyTorch compiles nothing while they are drawn alike")
        if not self.attempt("construct", lambda: self.fresh("tpu")):
            return self.steps
        self.attempt("forward", lambda: self.check_forward(expected["forward"]))
        if self.case.generates and not self.compiled:
            self.check_generations()
        if "train" in expected:
            self.check_training(expected["train"])
        fallbacks = torch.tpu.counters()["fallbacks"]
        self.steps["fallbacks"] = "ok" if not fallbacks else f"on the CPU: {fallbacks}"
        return self.steps

    def check_forward(self, expected: Result) -> None:
        model = self.fresh("tpu")
        graphs = dynamo_counters["stats"]["unique_graphs"]
        with self.randomness():
            actual = forward(model, self.batch("tpu"), self.called(model))
        if self.compiled and dynamo_counters["stats"]["unique_graphs"] == graphs:
            raise Disagreement("nothing of it was compiled")
        compare(actual.outputs, expected.outputs, self.others("forward", "outputs"))

    def check_training(self, expected: Result) -> None:
        actual: list[Result] = []

        def run() -> None:
            model = self.fresh("tpu")
            with self.randomness():
                actual.append(train(model, self.batch("tpu"), self.training, self.called(model)))
            compare(actual[0].outputs, expected.outputs, self.others("train", "outputs"))

        self.attempt("loss", run)
        if actual:
            others = self.others("train", "gradients")
            gradients = actual[0].gradients
            if (
                self.compiled
            ):  # a compiled graph, on the CPU as well, gives zeros to weights that have no part in the loss
                gradients = {
                    name: value for name, value in gradients.items() if name in expected.gradients or value.any()
                }
            self.attempt("backward", lambda: compare(gradients, expected.gradients, others))
            others = self.others("train", "weights")
            self.attempt("step", lambda: compare(actual[0].weights, expected.weights, others, absolute=0.02 * RATE))

    def check_generations(self) -> None:
        for name, options in GENERATIONS.items():
            options = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": 1, "pad_token_id": 0, **options}
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expected = self.generate("cpu", options)
            except Exception as error:
                self.steps[name] = "not on the CPU: " + describe(error)
                continue
            self.attempt(name, lambda options=options, expected=expected: self.check_tokens(options, expected))

    def generate(self, device: str, options: dict[str, Any]) -> dict[str, torch.Tensor]:
        model = self.fresh(device).eval()
        batch = self.batch(device, labels=False)
        for name in ("decoder_input_ids", "mm_token_type_ids"):
            batch.pop(name, None)
        if model.config.is_encoder_decoder and model.generation_config.decoder_start_token_id is None:
            options = {"decoder_start_token_id": 0, **options}
        torch.manual_seed(2)
        # What is drawn although nothing is sampled, as noise to start from, has to be the same on both devices.
        with torch.no_grad(), self.randomness() if options["do_sample"] else HostRandomness():
            return {name: host(value) for name, value in tensors(model.generate(**batch, **options))}

    def generate_lowest_first(self, options: dict[str, Any]) -> dict[str, torch.Tensor]:
        with LowestFirst():
            return self.generate("cpu", options)

    def check_tokens(self, options: dict[str, Any], expected: dict) -> None:
        actual = self.generate("tpu", options)
        if not options["do_sample"] and self.dtype == torch.float32:
            compare(actual, expected, lambda: [self.generate_lowest_first(options)])
            return
        # Samples are tpu's own, and in bf16 two tokens often have one score: then a second run is what has to agree.
        again = self.generate("tpu", options)
        if actual.keys() != again.keys() or not all(torch.equal(actual[key], again[key]) for key in actual):
            raise Disagreement("a second run with the same seed draws something else")


def describe(error: BaseException) -> str:
    """An error in a line: its type, what it says, and the last line of the model's code that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "/site-packages/" in f.filename and "/torch/" not in f.filename), None)
    text = " ".join(str(error).split())[:300]
    where = f" ({place.filename.rpartition('/')[2]}:{place.lineno})" if place else ""
    return f"{type(error).__name__}: {text}{where}"


def run_trial(case: Case, dtype: torch.dtype, compiled: bool = False) -> dict[str, Any]:
    """The outcome of every step for one model, with how long it took."""
    began = time.monotonic()
    randomize(case.model)
    trial = Trial(case, dtype, compiled)
    steps = trial.run()
    host_operators = torch.tpu.counters().get("host", {})
    return {
        **case.notes,
        "steps": steps,
        "random": trial.random,
        "training": trial.training,
        "host": dict(host_operators) if isinstance(host_operators, dict) else host_operators,
        "seconds": round(time.monotonic() - began, 2),
    }
