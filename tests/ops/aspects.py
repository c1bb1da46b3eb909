"""What of an operator is compared with the CPU: its values and gradients, out=, in-place form, errors, metadata, ...

An aspect is a row of ``ASPECTS``: which operators and dtypes have it, the samples, and the check of one sample, which
raises what is wrong. Further derivatives stand in derivatives.py.
"""

import re
import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple

import compare
import derivatives
from torch.testing._internal.common_methods_invocations import BinaryUfuncInfo, ForeachFuncInfo, UnaryUfuncInfo
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_map

import torch


class Refused(Exception):
    """The CPU refuses the call: the sample says nothing about the device."""


def on_cpu(op, sample):
    """The CPU's result."""
    try:
        compare.seed()
        return op(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        raise Refused from error


def tensors(value) -> list[torch.Tensor]:
    """All tensors in it."""
    return [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor)]


def quietly(function: Callable):
    """Call it without the warnings that PyTorch has for some operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function()


# ---- values ----------------------------------------------------------------------------------------------------------


def has_gradient(op, dtype: torch.dtype) -> bool:
    """Does the database say that the operator can be differentiated in that dtype?"""
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def samples_with_gradient(op, dtype: torch.dtype) -> Iterable:
    """The database's samples; they ask for a gradient where there is one."""

    def leaf(x):  # a view of a tensor that requires a gradient, taken without a graph, gets none itself
        if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf and x._is_view():
            return x.detach().requires_grad_()
        return x

    for sample in op.sample_inputs("cpu", dtype, requires_grad=has_gradient(op, dtype)):
        sample.input, sample.args, sample.kwargs = tree_map(leaf, (sample.input, sample.args, sample.kwargs))
        yield sample


def check_values(op, dtype: torch.dtype, sample) -> None:
    """Values, dtype, sizes and the first gradient."""
    expected = quietly(lambda: on_cpu(op, sample))
    compare.check_sample(op, sample, expected, has_gradient(op, dtype))


def check_noncontiguous(op, dtype: torch.dtype, sample) -> None:
    """The same of tensors that are not contiguous."""
    spread = sample.noncontiguous()
    spread.input, spread.args, spread.kwargs = tree_map(  # noncontiguous_like leaves requires_grad of a copy behind
        lambda x: x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x,
        (spread.input, spread.args, spread.kwargs),
    )
    check_values(op, dtype, spread)


def reference_samples(op, dtype: torch.dtype) -> Iterable:
    """What PyTorch compares with NumPy: also infinities, NaN, large numbers, no elements, 0-d, promotion."""
    return op.reference_inputs("cpu", dtype)


def check_reference(op, dtype: torch.dtype, sample) -> None:
    """Values only."""
    compare.check_sample(op, sample, quietly(lambda: on_cpu(op, sample)), with_grad=False)


# ---- out= ------------------------------------------------------------------------------------------------------------


def junk(sizes, dtype: torch.dtype) -> torch.Tensor:
    """Contiguous, not zero."""
    return torch.ones(sizes, dtype=torch.uint8).to(dtype)


def wider_dtype(dtype: torch.dtype) -> torch.dtype:
    """A dtype to which that one may be cast."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.float32


def narrower_dtype(dtype: torch.dtype) -> torch.dtype:
    """A dtype to which that one may not be cast."""
    return torch.float32 if dtype.is_complex else torch.int64 if dtype.is_floating_point else torch.bool


OUTPUTS = {  # the out= argument for an expected result
    "right": lambda e: junk(e.shape, e.dtype),
    "strided": lambda e: junk((*e.shape, 2), e.dtype)[..., 1],
    "transposed": lambda e: junk(e.shape[::-1], e.dtype).permute(tuple(reversed(range(e.dim())))),
    "empty": lambda e: torch.empty(0, dtype=e.dtype),
    "larger": lambda e: junk((*(n + 1 for n in e.shape), 2), e.dtype),
    "wider": lambda e: junk(e.shape, wider_dtype(e.dtype)),
    "narrower": lambda e: junk(e.shape, narrower_dtype(e.dtype)),
}


class Outcome(NamedTuple):
    """What a call with out= did."""

    error: type | None
    message: str
    resize_warnings: int
    kept: list[bool]  # of each output: is its memory the same as before?
    is_output: bool  # are the results the outputs themselves?
    outputs: list[torch.Tensor]


def call_with_output(op, sample, out) -> Outcome:
    """Call and observe."""
    outputs = tensors(out)
    before = [t.data_ptr() for t in outputs]
    error, message, is_output = None, "", True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compare.seed()
            got = op(sample.input, *sample.args, **sample.kwargs, out=out)
            is_output = all(a is b for a, b in zip(tensors(got), outputs, strict=True))
        except Exception as raised:
            error, message = type(raised), str(raised)
    resized = sum("An output with one or more elements was resized" in str(w.message) for w in caught)
    kept = [t.data_ptr() == address for t, address in zip(outputs, before, strict=True)]
    return Outcome(error, message, resized, kept, is_output, outputs)


def name_of(error: type | None) -> str:
    return "no error" if error is None else error.__name__


def same_strides(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal strides where they matter."""
    if a.numel() == 0:
        return True
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def is_inexact(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def check_out(op, dtype: torch.dtype, sample) -> None:
    """Each kind of out= argument: values, strides kept, resized or not, with the warning, refused or not."""
    expected = quietly(lambda: on_cpu(op, sample))
    if not tensors(expected):
        return
    moved = compare.move_sample(op, sample)
    oracle = compare.Oracle(op, sample)
    operands = tensors((sample.input, sample.args, sample.kwargs))
    for case, make in OUTPUTS.items():
        if case == "transposed" and op.name in ("tril", "triu"):
            continue  # the CPU's kernels write outside of a transposed out=, and the process dies later
        outs = tree_map(lambda t, make=make: make(t) if isinstance(t, torch.Tensor) else t, expected)
        again = tree_map(lambda t, make=make: make(t) if isinstance(t, torch.Tensor) else t, expected)
        theirs = call_with_output(op, sample, outs)
        ours = call_with_output(op, moved, compare.to_device(again, "tpu"))
        if case == "wider" and ours.error is theirs.error is None and not any(is_inexact(t) for t in operands):
            continue  # of integers, a result in a wider float may be computed so
        compare_outcomes(op, case, ours, theirs, expected, oracle)
    check_output_elsewhere(op, sample, moved, expected)
    if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo)):
        check_aliased_output(op, sample, expected, oracle)


def compare_outcomes(op, case: str, ours: Outcome, theirs: Outcome, expected, oracle) -> None:
    """Is what happened on tpu what happened on the CPU?"""
    if ours.error is None and theirs.error is not None and case in ("empty", "larger"):
        return  # a few of the CPU's kernels do not resize
    if theirs.error is not None or ours.error is not None:
        if ours.error is NotImplementedError and theirs.error is not NotImplementedError:
            raise NotImplementedError(ours.message)
        assert ours.error is theirs.error, (
            f"out= {case}: {name_of(ours.error)} ({ours.message}) instead of {name_of(theirs.error)} ({theirs.message})"
        )
        return
    assert ours.is_output or not theirs.is_output, f"out= {case}: the result is not the out= argument"
    assert ours.resize_warnings >= min(theirs.resize_warnings, 1), f"out= {case}: no resize warning"
    for g, e, we_kept, they_kept in zip(ours.outputs, theirs.outputs, ours.kept, theirs.kept, strict=True):
        assert g.shape == e.shape, f"out= {case}: shape {tuple(g.shape)} instead of {tuple(e.shape)}"
        assert we_kept or not they_kept, f"out= {case}: the memory was replaced"
        right = case in ("empty", "larger") or same_strides(g, e)  # after a resize the strides are the kernel's choice
        assert right, f"out= {case}: strides {g.stride()} instead of {e.stride()}"
    theirs_are = tensors(expected)
    try:
        compare.check_values(op, narrowed(theirs.outputs, expected), theirs_are, oracle)
    except compare.Different:
        if case != "narrower":
            return  # the CPU's kernel is wrong itself
        theirs_are = narrowed(theirs.outputs, expected)
    try:
        compare.check_values(op, narrowed(ours.outputs, expected), theirs_are, oracle)
    except compare.Different as error:
        if not oracle.is_random():
            raise compare.Different(f"out= {case}: {error}") from None


def narrowed(outputs: list[torch.Tensor], expected) -> list[torch.Tensor]:
    """In the dtypes that the results have without out=: in others they are no more exact."""
    return [t.to(e.dtype) for t, e in zip(outputs, tensors(expected), strict=True)]


def check_output_elsewhere(op, sample, moved, expected) -> None:
    """out= on another device than the operands is refused."""
    operands = tensors((moved.input, moved.args, moved.kwargs))
    if not any(t.dim() > 0 for t in operands) or all(t.dim() == 0 for t in tensors(expected)):
        return
    outs = tree_map(lambda t: OUTPUTS["right"](t) if isinstance(t, torch.Tensor) else t, expected)
    outcome = call_with_output(op, moved, outs)
    assert outcome.error is not None, "out= on the CPU is taken"


def check_aliased_output(op, sample, expected, oracle) -> None:
    """A pointwise operator may write its input, but not a part of it that is shifted."""
    x = sample.input
    if not isinstance(x, torch.Tensor) or not isinstance(expected, torch.Tensor) or x.dim() == 0:
        return
    if expected.dtype != x.dtype or expected.shape != x.shape or x.shape[0] < 2:
        return

    def run(device: str, shifted: bool) -> Outcome:
        case = sample.transform(lambda t: t)
        base = torch.cat([x.detach(), x.detach()[:1]]).to(device)
        case.input, out = base[:-1], base[1:] if shifted else base[:-1]
        case.args, case.kwargs = compare.to_device((sample.args, sample.kwargs), device)
        return call_with_output(op, case, out)

    compare_outcomes(op, "input", run("tpu", False), run("cpu", False), expected, oracle)
    ours, theirs = run("tpu", True), run("cpu", True)
    if theirs.error is not None:  # a few of the CPU's kernels do not look
        compare_outcomes(op, "shifted input", ours, theirs, expected, oracle)


# ---- in place --------------------------------------------------------------------------------------------------------


def check_inplace(op, dtype: torch.dtype, sample) -> None:
    """The in-place form: what it writes, that it gives its argument back, what it refuses, its gradient."""
    with_grad = op.supports_inplace_autograd and has_gradient(op, dtype)
    for strided in (False, True):
        theirs, e = run_inplace(op, sample, strided)
        moved = compare.move_sample(op, sample)
        ours, g = run_inplace(op, moved, strided)
        if isinstance(g, NotImplementedError) and not isinstance(e, NotImplementedError):
            raise g
        if sample.broadcasts_input:
            assert isinstance(g, RuntimeError), (
                f"in place: {describe(g)} for an input that the result does not fit into"
            )
            continue
        if isinstance(e, Exception) or isinstance(g, Exception):
            assert type(g) is type(e), f"in place: {describe(g)} instead of {describe(e)}"
            continue
        for a, b in zip(tensors(g), tensors(ours), strict=True) if g is not None else ():
            assert a is b, "in place: the result is not the argument"
        oracle = compare.Oracle(op, sample)
        try:
            compare.check_metadata(op, sample, ours, theirs)
            compare.check_values(op, ours, theirs, oracle)
            if with_grad:
                compare.check_gradients(op, sample, moved, ours, theirs, oracle)
        except compare.Different as error:
            if not oracle.is_random():
                raise compare.Different(f"in place: {error}") from None


def describe(result) -> str:
    return f"{type(result).__name__} ({result})" if isinstance(result, Exception) else "no error"


def run_inplace(op, sample, strided: bool):
    """The written copy of the input and the result, or the exception."""

    def copy(t):
        if not isinstance(t, torch.Tensor):
            return t
        if not strided:
            return t.clone()
        return torch.stack([t, t], -1)[..., 0]  # a view, as graphs allow it of a copy

    written = tree_map(copy, sample.input)
    compare.seed()
    try:
        return written, quietly(lambda: op.inplace_variant(written, *sample.args, **sample.kwargs))
    except Exception as error:
        return written, error


# ---- errors ----------------------------------------------------------------------------------------------------------


def error_samples(op, dtype: torch.dtype) -> Iterable:
    """Calls that are to be refused."""
    return op.error_inputs("tpu")


def raised_by(op, sample) -> Exception | None:
    """What a call raises, at once or when the device is done."""
    try:
        quietly(lambda: tree_map(finish, op(sample.input, *sample.args, **sample.kwargs)))
    except Exception as error:
        return error
    return None


def finish(value):
    return value.cpu() if isinstance(value, torch.Tensor) else value


def check_errors(op, dtype: torch.dtype, case) -> None:
    """A call that the database wants refused: the exception's type and message are those it asks for."""
    error = raised_by(op, case.sample_input)
    if is_as_asked(error, case):
        return
    theirs = raised_by(op, on_the_cpu(case.sample_input))
    if not is_as_asked(theirs, case):
        if type(error) is type(theirs):
            raise Refused
        assert theirs is None, f"{describe(error)} instead of {describe(theirs)}"
        raise Refused
    raise AssertionError(f"{describe(error)} instead of {describe(theirs)}")


def is_as_asked(error: Exception | None, case) -> bool:
    return isinstance(error, case.error_type) and re.search(case.error_regex, str(error)) is not None


def on_the_cpu(sample):
    moved = sample.transform(lambda x: x)
    moved.input, moved.args, moved.kwargs = compare.to_device((sample.input, sample.args, sample.kwargs), "cpu")
    return moved


# ---- operands that are numbers ---------------------------------------------------------------------------------------


def check_scalars(op, dtype: torch.dtype, sample) -> None:
    """Each operand in turn as a 0-d CPU tensor and, after the first, as a Python number."""
    operands = [sample.input, *sample.args]
    if not isinstance(sample.input, torch.Tensor) or sum(isinstance(t, torch.Tensor) for t in operands) < 2:
        raise Refused
    for i, t in enumerate(operands):
        if not isinstance(t, torch.Tensor) or t.numel() == 0:
            continue
        number = t.detach().reshape(-1)[0].clone()
        for replacement in [number] + ([number.item()] if i > 0 else []):
            case, moved = sample.transform(lambda x: x.detach() if isinstance(x, torch.Tensor) else x), None
            case.input, *case.args = [*operands[:i], replacement, *operands[i + 1 :]]
            case.args = tuple(case.args)
            try:
                expected = quietly(lambda case=case: on_cpu(op, case))
            except Refused:
                continue
            moved = compare.move_sample(op, case)
            if i == 0:
                moved.input = number
            else:
                moved.args = (*moved.args[: i - 1], replacement, *moved.args[i:])
            if not any(t.device.type == "tpu" for t in tensors((moved.input, moved.args))):
                continue
            compare.check_moved(op, case, moved, expected, with_grad=False)


# ---- conj and neg views ----------------------------------------------------------------------------------------------


def check_views(op, dtype: torch.dtype, sample) -> None:
    """Operands whose conjugate or negative bit is set mean the same numbers."""

    def conjugate(t):
        return t.detach().conj().resolve_conj().conj() if isinstance(t, torch.Tensor) and t.is_complex() else t

    def negative(t):
        if not isinstance(t, torch.Tensor) or not (t.is_floating_point() or t.is_complex()):
            return t
        return torch._neg_view(t.detach().neg())

    for change in (conjugate, negative) if dtype.is_complex else (negative,):
        viewed = sample.transform(change)
        expected = quietly(lambda viewed=viewed: on_cpu(op, viewed))
        compare.check_moved(op, sample, compare.move_sample(op, viewed), expected, with_grad=False)


# ---- metadata --------------------------------------------------------------------------------------------------------


def check_metadata(op, dtype: torch.dtype, sample) -> None:
    """Sizes, strides and dtype as Meta's, or as the CPU's where Meta has no answer or another; views of the same."""
    expected = quietly(lambda: on_cpu(op, sample))
    moved = compare.move_sample(op, sample)
    got = quietly(lambda: op(moved.input, *moved.args, **moved.kwargs))
    compare.check_metadata(op, sample, got, expected)
    try:
        meta = sample.transform(lambda x: x)
        meta.input, meta.args, meta.kwargs = compare.to_device((sample.input, sample.args, sample.kwargs), "meta")
        promised = tensors(quietly(lambda: op(meta.input, *meta.args, **meta.kwargs)))
    except Exception:
        promised = tensors(expected)  # its sizes follow from values, or it is no operator of one device
    if len(promised) != len(tensors(expected)):
        promised = tensors(expected)
    for g, e, m in zip(tensors(got), tensors(expected), promised, strict=True):
        fits = same_strides(g, e) or (m.shape == g.shape and same_strides(g, m))
        assert fits, (
            f"strides {g.stride()} of shape {tuple(g.shape)} instead of {m.stride()} (Meta), {e.stride()} (CPU)"
        )
    check_aliases((moved.input, moved.args, moved.kwargs), got, (sample.input, sample.args, sample.kwargs), expected)


def check_aliases(inputs, got, cpu_inputs, expected) -> None:
    """Which results share the storage of which operands, and from where on."""
    for i, (g, e) in enumerate(zip(tensors(got), tensors(expected), strict=True)):
        for j, (x, y) in enumerate(zip(tensors(inputs), tensors(cpu_inputs), strict=True)):
            ours, theirs = (
                a.untyped_storage()._cdata == b.untyped_storage()._cdata and a.numel() > 0 for a, b in ((g, x), (e, y))
            )
            assert ours == theirs, f"result {i} {'shares' if ours else 'does not share'} the memory of operand {j}"
            if theirs:
                assert g.storage_offset() == e.storage_offset(), (
                    f"result {i} begins at {g.storage_offset()} instead of {e.storage_offset()}"
                )
                assert g is x or g._is_view() == e._is_view(), f"result {i} is {'a' if g._is_view() else 'no'} view"


# ---- execution modes -------------------------------------------------------------------------------------------------


def check_modes(op, dtype: torch.dtype, sample) -> None:
    """The same fused, one operator at a time, and blocking: bit for bit; gradients and complex numbers to rounding.

    The order of a sum follows the layout of what it sums, which a producer fused into it changes: gradients of what was
    broadcast are such sums. And the C compiler contracts complex products. LAPACK on the host does not repeat its own
    bits (gelsy gives several results for one matrix).
    """
    expected = quietly(lambda: on_cpu(op, sample))
    if op.name in compare.UNWRITTEN:
        return
    with_grad = compare.scalar(expected) is not None
    if with_grad:
        try:
            torch.autograd.grad(compare.scalar(expected), compare.leaves(sample), allow_unused=True)
        except Exception:
            with_grad = False  # the CPU has none for this sample
    runs = {}
    for mode in torch.tpu.ExecutionMode:
        with torch.tpu.execution_mode(mode):
            moved = compare.move_sample(op, sample)
            compare.seed()
            got = quietly(lambda moved=moved: op(moved.input, *moved.args, **moved.kwargs))
            values = [t.detach() for t in tensors(got)]
            result_count = len(values)
            if with_grad:
                values += torch.autograd.grad(compare.scalar(got), compare.leaves(moved), allow_unused=True)
            runs[mode] = [None if t is None else t.cpu() for t in values]
    first = runs[torch.tpu.ExecutionMode.FUSED]
    to_rounding = op.name.startswith("linalg.lstsq") or any(t is not None and t.is_complex() for t in first)
    for mode, values in runs.items():
        for i, (a, b) in enumerate(zip(values, first, strict=True)):
            rounds = a is not None and is_inexact(a) and (to_rounding or i >= result_count)
            rounding = 64 * torch.finfo(a.dtype).eps if rounds else 0
            try:
                torch.testing.assert_close(a, b, rtol=rounding, atol=rounding, equal_nan=True)
            except AssertionError as error:
                raise compare.Different(f"{mode}, value {i}: {error}") from None


# ---- torch.compile ---------------------------------------------------------------------------------------------------


def run_compiled(op, sample, backend: str) -> list:
    """The results of two calls of the operator compiled, each behind the same seed."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, *args, **kwargs: op(x, *args, **kwargs), backend=backend, dynamic=False, fullgraph=False
    )
    results = []
    for _ in range(2):
        compare.seed()
        results.append(quietly(lambda: compiled(sample.input, *sample.args, **sample.kwargs)))
    return results


def check_compiled(op, dtype: torch.dtype, sample) -> None:
    """A compiled call gives what an eager one gives, the first time and the second."""
    quietly(lambda: on_cpu(op, sample))
    if op.name in compare.UNWRITTEN:
        return
    moved = compare.move_sample(op, sample)
    compare.seed()
    expected = tensors(quietly(lambda: op(moved.input, *moved.args, **moved.kwargs)))
    try:
        runs = run_compiled(op, moved, "tpu")
    except Exception:
        try:
            run_compiled(op, sample, "aot_eager")
        except Exception as error:
            raise Refused from error  # PyTorch itself cannot compile it
        raise
    # In evaluation AOTAutograd's decomposition gives statistics where the eager operator has none, but for the CPU.
    compared = 1 if op.name in ("native_batch_norm", "_native_batch_norm_legit") else len(expected)
    for run in runs:
        torch.testing.assert_close(tensors(run)[:compared], expected[:compared], equal_nan=True)


# ---- the list --------------------------------------------------------------------------------------------------------


class Aspect(NamedTuple):
    """One thing to compare."""

    applies: Callable[[OpInfo, torch.dtype], bool]
    samples: Callable[[OpInfo, torch.dtype], Iterable]
    check: Callable[[OpInfo, torch.dtype, object], None]


NUMBER_OPERANDS = {"where", "addcmul", "addcdiv", "lerp", "clamp", "clamp_min", "clamp_max"}  # beside binary ones


def takes_numbers(op) -> bool:
    """Does PyTorch take a 0-d CPU tensor for any operand of it, on every device?"""
    return isinstance(op, BinaryUfuncInfo) or op.name in NUMBER_OPERANDS


def once(op, dtype: torch.dtype) -> bool:
    """For samples that choose their dtypes themselves: one of the operator's stands for all."""
    return dtype == next(d for d in compare.DTYPES.values() if d in op.supported_dtypes("cpu"))


def plain_samples(op, dtype: torch.dtype) -> Iterable:
    """The database's samples without gradients."""
    return op.sample_inputs("cpu", dtype)


ASPECTS = {
    "values": Aspect(lambda op, d: True, samples_with_gradient, check_values),
    "noncontiguous": Aspect(lambda op, d: True, samples_with_gradient, check_noncontiguous),
    "reference": Aspect(lambda op, d: op.reference_inputs_func is not None, reference_samples, check_reference),
    "out": Aspect(lambda op, d: op.supports_out and not isinstance(op, ForeachFuncInfo), plain_samples, check_out),
    "inplace": Aspect(lambda op, d: op.inplace_variant is not None, samples_with_gradient, check_inplace),
    "errors": Aspect(lambda op, d: op.error_inputs_func is not None and once(op, d), error_samples, check_errors),
    "scalars": Aspect(lambda op, d: takes_numbers(op), plain_samples, check_scalars),
    "views": Aspect(lambda op, d: d.is_complex or d == torch.float64, plain_samples, check_views),
    "metadata": Aspect(lambda op, d: True, plain_samples, check_metadata),
    "modes": Aspect(lambda op, d: True, samples_with_gradient, check_modes),
    "compiled": Aspect(lambda op, d: d in (torch.float32, torch.int64), plain_samples, check_compiled),
    "second": Aspect(derivatives.has_second, samples_with_gradient, derivatives.check_second),
    "forward": Aspect(derivatives.has_forward, plain_samples, derivatives.check_forward),
}
