"""CTC against the CPU: losses, what is saved for the gradient, gradients, lengths in all forms, errors."""

import itertools

import pytest
import torch.nn.functional as F

import torch

A = torch.ops.aten
STEPS, BATCH, LABELS = 9, 5, 6
INPUTS = [9, 7, 9, 2, 0]  # the fourth is too short for its target, the fifth is not heard at all
TARGETS = [4, 3, 0, 3, 0]


def make(dtype=torch.float32, index=torch.int64, padded=True, blank=0):
    torch.manual_seed(0)
    log_probs = torch.randn(STEPS, BATCH, LABELS, dtype=dtype).log_softmax(2)
    labels = [n for n in range(LABELS) if n != blank]
    rows = torch.tensor(labels)[torch.randint(0, LABELS - 1, (BATCH, 5))]
    rows[0, 1] = rows[0, 0]  # the same label twice needs a blank between
    if padded:
        for row, length in zip(rows, TARGETS, strict=True):
            row[length:] = -1  # never read
        return log_probs, rows.to(index)
    return log_probs, torch.cat([row[:length] for row, length in zip(rows, TARGETS, strict=True)]).to(index)


def inside(log_alpha):
    """What the CPU writes of it."""
    rows = zip(log_alpha, INPUTS, TARGETS, strict=True)
    return [row[: max(steps, 1), : 2 * length + 1] for row, steps, length in rows]


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("dtype, index", [(torch.float32, torch.int64), (torch.float64, torch.int32)], ids=str)
def test_forward_and_backward(dtype, index, padded, blank):
    log_probs, targets = make(dtype, index, padded, blank)
    moved = log_probs.to("tpu"), targets.to("tpu")
    for zero_infinity in (False, True):
        rest = (INPUTS, TARGETS, blank, zero_infinity)
        expected, got = A._ctc_loss(log_probs, targets, *rest), A._ctc_loss(*moved, *rest)
        assert [t.stride() for t in got] == [t.stride() for t in expected]
        torch.testing.assert_close(got[0].cpu(), expected[0])
        for e, r in zip(inside(expected[1]), inside(got[1].cpu()), strict=True):
            torch.testing.assert_close(r, e)
        gradient = torch.randn(BATCH, dtype=dtype)
        rest = (INPUTS, TARGETS, *expected, blank, zero_infinity)
        wanted = A._ctc_loss_backward(gradient, log_probs, targets, *rest)
        found = A._ctc_loss_backward(
            gradient.to("tpu"), *moved, INPUTS, TARGETS, *(t.to("tpu") for t in expected), blank, zero_infinity
        )
        torch.testing.assert_close(found.cpu(), wanted, equal_nan=True)


def test_lengths_as_tensors():
    log_probs, targets = make()
    moved = log_probs.to("tpu"), targets.to("tpu")
    expected = A._ctc_loss(log_probs, targets, INPUTS, TARGETS)
    for device, dtype in itertools.product(("cpu", "tpu"), (torch.int64, torch.int32)):
        lengths = [torch.tensor(n, device=device, dtype=dtype) for n in (INPUTS, TARGETS)]
        loss, log_alpha = A._ctc_loss.Tensor(*moved, *lengths)
        torch.testing.assert_close(loss.cpu(), expected[0])
        one = torch.ones(BATCH, device="tpu")
        found = A._ctc_loss_backward.Tensor(one, *moved, *lengths, loss, log_alpha, 0, True)
        wanted = A._ctc_loss_backward(one.cpu(), log_probs, targets, INPUTS, TARGETS, *expected, 0, True)
        torch.testing.assert_close(found.cpu(), wanted)
    with pytest.raises(RuntimeError, match="input_lengths must be integral"):
        A._ctc_loss.Tensor(*moved, torch.ones(BATCH), torch.ones(BATCH))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("padded", [True, False])
def test_functional(padded, reduction):
    log_probs, targets = make(padded=padded)
    results = []
    for device in ("cpu", "tpu"):
        x = log_probs.to(device).requires_grad_()
        given = (targets.to(device), torch.tensor(INPUTS), torch.tensor(TARGETS))
        loss = F.ctc_loss(x, *given, reduction=reduction, zero_infinity=True)
        (gradient,) = torch.autograd.grad(loss.sum(), x)
        results.append((loss.detach().cpu(), gradient.cpu()))
    torch.testing.assert_close(results[1], results[0])


def test_probabilities_of_zero():
    log_probs, targets = make()
    log_probs[3, :, 1] = -float("inf")
    log_probs[5, 1, 0] = float("nan")
    expected = A._ctc_loss(log_probs, targets, INPUTS, TARGETS)
    moved = [t.to("tpu") for t in (log_probs, targets)]
    loss, log_alpha = A._ctc_loss(*moved, INPUTS, TARGETS)
    torch.testing.assert_close(loss.cpu(), expected[0], equal_nan=True)
    wanted = A._ctc_loss_backward(torch.ones(BATCH), log_probs, targets, INPUTS, TARGETS, *expected, 0)
    found = A._ctc_loss_backward(torch.ones(BATCH, device="tpu"), *moved, INPUTS, TARGETS, loss, log_alpha, 0)
    torch.testing.assert_close(found.cpu(), wanted, equal_nan=True)


def test_no_targets_and_one_sequence():
    for inputs, targets, rows in [([4], [0], (1, 0)), ([4], [2], (2,)), ([0], [2], (1, 2)), ([4, 4], [0, 0], (0,))]:
        torch.manual_seed(0)
        log_probs = torch.randn(4, len(inputs), 3).log_softmax(2)
        labels = torch.ones(rows, dtype=torch.int64)
        expected = A._ctc_loss(log_probs, labels, inputs, targets)
        got = A._ctc_loss(log_probs.to("tpu"), labels.to("tpu"), inputs, targets)
        torch.testing.assert_close(got[0].cpu(), expected[0])
        one = torch.ones(len(inputs))
        wanted = A._ctc_loss_backward(one, log_probs, labels, inputs, targets, *expected, 0, True)
        moved = [t.to("tpu") for t in (one, log_probs, labels)]
        found = A._ctc_loss_backward(*moved, inputs, targets, *got, 0, True)
        torch.testing.assert_close(found.cpu(), wanted)


def test_other_lengths_are_the_same_program():
    log_probs, targets = (t.to("tpu") for t in make())
    for first, lengths in enumerate([[4, 1, 2, 3, 4], [1, 4, 1, 2, 1], [4, 4, 4, 4, 4]]):
        before = torch.tpu.counters()["programs_built"]
        A._ctc_loss(log_probs, targets.clamp(min=1), [9 - first] * BATCH, lengths)[0].cpu()
        assert first == 0 or torch.tpu.counters()["programs_built"] == before


@pytest.mark.parametrize(
    "inputs, targets, labels, dtype, blank",
    [
        ([3, 9], [1, 1], (2, 2), torch.float32, 0),
        ([-1, 4], [1, 1], (2, 2), torch.float32, 0),
        ([4], [1, 1], (2, 2), torch.float32, 0),
        ([4, 4], [1], (2, 2), torch.float32, 0),
        ([4, 4], [1, -1], (2, 2), torch.float32, 0),
        ([4, 4], [1, 3], (2, 2), torch.float32, 0),
        ([4, 4], [1, 1], (3, 2), torch.float32, 0),
        ([4, 4], [1, 1], (3,), torch.float32, 0),
        ([4, 4], [1, 1], (1, 2, 2), torch.float32, 0),
        ([4, 4], [1, 1], (2, 2), torch.float32, 3),
        ([4, 4], [1, 1], (2, 2), torch.float32, -1),
        ([4, 4], [1, 1], (2, 2), torch.bfloat16, 0),
        ([4, 4], [1, 1], (2, 2), torch.int64, 0),
    ],
)
def test_bad_calls_raise_the_cpu_error(inputs, targets, labels, dtype, blank):
    errors = []
    for device in ("cpu", "tpu"):
        log_probs = torch.zeros(4, 2, 3, dtype=dtype, device=device)
        with pytest.raises(RuntimeError) as error:
            A._ctc_loss(log_probs, torch.ones(labels, dtype=torch.int64, device=device), inputs, targets, blank)
        errors.append((error.type, str(error.value).split("\n")[0].replace(device.upper(), "")))
    assert errors[0] == errors[1]


def test_saved_tensors_of_other_sizes():
    log_probs, targets = (t.to("tpu") for t in make())
    with pytest.raises(RuntimeError, match="log_probs"):
        loss, log_alpha = A._ctc_loss(log_probs, targets, INPUTS, TARGETS)
        A._ctc_loss_backward(loss, log_probs, targets, INPUTS, TARGETS, loss[:2], log_alpha, 0).cpu()
