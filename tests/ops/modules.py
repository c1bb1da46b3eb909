"""PyTorch's modules and optimizers (module_db, optim_db) on tpu, compared with the CPU.

A module is built once on the CPU and copied; then values, the gradients of inputs and parameters, second derivatives,
what it is in evaluation, inputs that are not contiguous, and the errors that the database asks for. An optimizer takes
a few steps on the same parameters and gradients on both devices, in every implementation (one tensor at a time,
foreach, fused, differentiable, capturable); parameters and state are compared.
"""

import copy
import re
import warnings

import compare
from torch.nn.parameter import UninitializedParameter
from torch.testing._internal.common_modules import ModuleErrorEnum, ModuleInfo
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, OptimizerInfo
from torch.testing._internal.common_utils import freeze_rng_state, noncontiguous_like
from torch.utils._pytree import tree_flatten, tree_map

import torch


class AsOperator:
    """What compare.py asks of an operator, for a module."""

    def __init__(self, name: str, decorators):
        self.name, self.variant_test_name, self.decorators = name, "", decorators or ()


# Derivatives pass through many operators, each as exact as compare.py asks.
FACTOR = 50


def check_close(info, got, expected, what: str, at_best: torch.dtype | None = None) -> None:
    """Compare trees of tensors, no more exactly than the dtype ``at_best`` allows."""
    got, expected = tree_flatten(got)[0], tree_flatten(expected)[0]
    assert len(got) == len(expected), f"{what}: {len(got)} results instead of {len(expected)}"
    operator = AsOperator(getattr(info, "name", "optimizer"), info.decorators)
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        if not isinstance(e, torch.Tensor):
            assert (g is None) == (e is None), f"{what} {i}: {g} instead of {e}"
            continue
        allowed = [compare.tolerances(operator, t) for t in (e.dtype, at_best) if t is not None]
        relative, absolute = (max(t) for t in zip(*allowed, strict=True))
        try:
            compare.check_close(
                operator, g.detach().cpu(), e.detach(), lambda: None, (FACTOR * relative, FACTOR * absolute)
            )
        except compare.Different as error:
            raise compare.Different(f"{what} {i}: {error}") from None


# ---- modules ---------------------------------------------------------------------------------------------------------


def inputs_of(info: ModuleInfo, dtype: torch.dtype, training: bool) -> list:
    """The database's constructor and forward arguments."""
    compare.seed()
    return list(info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=training))


def build(info: ModuleInfo, given, dtype: torch.dtype, training: bool) -> torch.nn.Module:
    """The module on the CPU, with parameters of the dtype."""
    compare.seed()
    args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
    module = info.module_cls(*args, **kwargs).to(dtype=dtype)
    if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
        with torch.no_grad():  # a lazy module makes its parameters from the first input
            module(*given.forward_input.args, **given.forward_input.kwargs)
    return module.train(training)


def leaf(x):
    """The same tensor as a leaf of its own."""
    return x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)


def run(module: torch.nn.Module, forward, spread: bool, device: str, second: bool) -> dict:
    """Results, gradients of inputs and parameters, and second derivatives where they are asked for."""
    inputs = tree_map(lambda x: leaf(x) if isinstance(x, torch.Tensor) else x, (forward.args, forward.kwargs))
    if spread:
        inputs = tree_map(lambda x: noncontiguous_like(x) if isinstance(x, torch.Tensor) else x, inputs)
    args, kwargs = compare.to_device(inputs, device)
    compare.seed()
    result = module(*args, **kwargs)
    found = {"result": result}
    wanted = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    wanted += [p for p in module.parameters() if p.requires_grad]
    outputs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not wanted:
        return found
    compare.seed(1)
    above = [torch.randn(t.shape, dtype=t.dtype).to(device) for t in outputs]
    first = torch.autograd.grad(outputs, wanted, above, create_graph=second, allow_unused=True)
    found["gradient"] = first
    smooth = [t for t in first if t is not None and t.requires_grad]
    if second and smooth:
        weights = [torch.randn(t.shape, dtype=t.dtype).to(device) for t in smooth]
        found["second derivative"] = torch.autograd.grad(smooth, wanted, weights, allow_unused=True)
    found["buffer"] = list(module.buffers())
    return found


def check_module(info: ModuleInfo, dtype: torch.dtype, training: bool, most: int) -> int:
    """Compare up to ``most`` of a module's inputs; gives how many there were."""
    compared = 0
    for i, given in enumerate(inputs_of(info, dtype, training)[:most]):
        if given.forward_input is None:
            continue
        for spread in (False, True):
            second = info.supports_gradgrad and dtype == torch.float64 and not spread
            module = build(info, given, dtype, training)
            moved = copy.deepcopy(module).to("tpu")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    expected = run(module, given.forward_input, spread, "cpu", second)
                except Exception:
                    continue  # not for this dtype
                found = run(moved, given.forward_input, spread, "tpu", second)
            assert set(found) == set(expected), f"{set(found)} instead of {set(expected)}"
            if is_random(info, module, given, dtype, training):
                continue
            for what, values in expected.items():
                check_close(info, found[what], values, f"input {i} ({given.desc}), {what}")
            compared += 1
    return compared


def is_random(info: ModuleInfo, module: torch.nn.Module, given, dtype: torch.dtype, training: bool) -> bool:
    """Does the module draw random numbers?"""
    runs = []
    for value in (0, 1):
        again = build(info, given, dtype, training)
        args, kwargs = tree_map(
            lambda x: x.detach() if isinstance(x, torch.Tensor) else x,
            (given.forward_input.args, given.forward_input.kwargs),
        )
        with freeze_rng_state():
            torch.manual_seed(value)
            runs.append([t for t in tree_flatten(again(*args, **kwargs))[0] if isinstance(t, torch.Tensor)])
    pairs = zip(*runs, strict=True)
    return any(not torch.equal(torch.nan_to_num(a.detach()), torch.nan_to_num(b.detach())) for a, b in pairs)


def check_module_errors(info: ModuleInfo, dtype: torch.dtype, training: bool) -> None:
    """Constructors and forward calls that the database wants refused, on tpu."""
    compare.seed()
    for case in info.module_error_inputs_func(info, "tpu", dtype, requires_grad=False, training=training):
        given = case.module_error_input
        args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
        try:
            module = info.module_cls(*args, **kwargs).to("tpu")
            if case.error_on is ModuleErrorEnum.FORWARD_ERROR:
                module(*given.forward_input.args, **given.forward_input.kwargs)
                torch.tpu.synchronize()
        except Exception as error:
            fits = isinstance(error, case.error_type) and re.search(case.error_regex, str(error))
            assert fits, f"{type(error).__name__}: {error} instead of {case.error_type.__name__}: {case.error_regex}"
        else:
            raise AssertionError(f"no error instead of {case.error_type.__name__}: {case.error_regex}")


# ---- optimizers ------------------------------------------------------------------------------------------------------

STEPS = 4


def implementations(info: OptimizerInfo) -> list[dict]:
    """The flags that choose how an optimizer computes."""
    flags = [{"foreach": False}] if "foreach" in info.supported_impls else [{}]
    flags += [{name: True} for name in info.supported_impls if name != "fused"]
    if "fused" in info.supported_impls:
        flags.append({"fused": True})
    if info.has_capturable_arg:
        flags.append({"capturable": True, "foreach": True})
    return flags


def train(info: OptimizerInfo, kwargs: dict, dtype: torch.dtype, device: str) -> tuple:
    """Parameters and state after a few steps along the same gradients on every device."""
    compare.seed()
    shapes = [(4, 3), (5, 6)] if info.optim_cls is torch.optim.Muon else [(4, 3), (7,), (), (2, 3, 5)]
    parameters = [torch.nn.Parameter(torch.randn(s, dtype=dtype).to(device)) for s in shapes]
    kwargs = tree_map(lambda x: x.detach().clone().to(device) if isinstance(x, torch.Tensor) else x, kwargs)
    optimizer = info.optim_cls(parameters, **kwargs)
    targets = [torch.randn(s, dtype=dtype).to(device) for s in shapes]

    def closure():
        optimizer.zero_grad()
        loss = sum(((p - t).abs() ** 2).sum() for p, t in zip(parameters, targets, strict=True))
        loss.backward()
        if info.only_supports_sparse_grads:
            for p in parameters:
                p.grad = p.grad.to_sparse()
        return loss

    for _ in range(STEPS):
        if kwargs.get("differentiable"):
            with torch.no_grad():
                torch.enable_grad()(closure)()
                optimizer.step()
        else:
            optimizer.step(closure)
    return parameters, optimizer.state_dict()["state"]


def check_optimizer(info: OptimizerInfo, dtype: torch.dtype) -> int:
    """Compare all configurations of the database in all implementations; gives how many there were."""
    compared = 0
    for given in info.optim_inputs_func(device="cpu"):
        for flags in implementations(info):
            kwargs = {**given.kwargs, **flags}
            if kwargs.get("capturable"):
                kwargs.setdefault("foreach", False)
            on_cpu = {k: v for k, v in kwargs.items() if k != "capturable"}  # the CPU has nothing to capture
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    expected = train(info, on_cpu, dtype, "cpu")
                except Exception:
                    continue
                found = train(info, kwargs, dtype, "tpu")
            at_best = torch.float32 if kwargs.get("capturable") else None  # the number of steps is a float32 then
            check_close(info, found[0], expected[0], f"{given.desc} {flags}: parameter", at_best)
            check_close(info, found[1], expected[1], f"{given.desc} {flags}: state", at_best)
            compared += 1
    return compared


def check_optimizer_errors(info: OptimizerInfo, dtype: torch.dtype) -> None:
    """Settings that the database wants refused."""
    for case in info.optim_error_inputs_func(device="tpu", dtype=dtype):
        given = case.optimizer_error_input
        parameters = given.params
        if parameters is None:
            parameters = [torch.nn.Parameter(torch.randn(2, 3, device="tpu", dtype=dtype))]
        try:
            optimizer = info.optim_cls(parameters, **given.kwargs)
            if case.error_on is OptimizerErrorEnum.STEP_ERROR:
                optimizer.step()
                torch.tpu.synchronize()
        except Exception as error:
            fits = isinstance(error, case.error_type) and re.search(case.error_regex, str(error))
            assert fits, f"{type(error).__name__}: {error} instead of {case.error_type.__name__}: {case.error_regex}"
        else:
            raise AssertionError(f"{given.desc}: no error instead of {case.error_type.__name__}: {case.error_regex}")
