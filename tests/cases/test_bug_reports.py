"""Faults that users reported on other PyTorch backends, each reduced to a small input.

The sources: P is pytorch/pytorch, X is pytorch/xla. A case's expected values are the correct ones, derived by hand
where the report allows it: no backend is the authority, the CPU's included. Several faults showed on the second
call only, so every case runs twice in a row.
"""

import dataclasses
import gc
import os
import tempfile
from collections.abc import Callable

import numpy
import pytest
import torch.nn.functional as F
from safetensors.torch import load_model, save_model
from support import assert_same, assert_values, in_fresh_python, on_both
from torch._dynamo.testing import CompileCounterWithBackend

import torch
from torch import nn

DEVICE = "tpu"
nan, inf = float("nan"), float("inf")


@dataclasses.dataclass
class Case:
    """One report: its number here, where it came from and what went wrong there, and the check."""

    name: str
    source: str
    symptom: str
    run: Callable[[], None]


CASES: list[Case] = []


def case(name: str, source: str, symptom: str):
    """Add the decorated check to the cases."""

    def add(run):
        CASES.append(Case(name, source, symptom, run))
        return run

    return add


@pytest.mark.parametrize("report", CASES, ids=lambda report: f"{report.name}-{report.run.__name__}")
def test_report(report: Case, no_fallback):
    for _ in range(2):
        report.run()


def tpu(values, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=DEVICE)


# ---- A. views, strides, in-place


@case("A01", "P#118115", "addcdiv_ is wrong on transposed operands")
def addcdiv_transposed():
    x = torch.arange(6.0, device=DEVICE).view(2, 3).t()
    y = torch.full((6,), 6.0, device=DEVICE).view(2, 3).t()
    z = torch.arange(1.0, 7.0, device=DEVICE).view(2, 3).t()
    assert_values(x.addcdiv_(y, z), [[6, 4.5], [4, 5.2], [4, 6]])


@case("A03", "P#131736", "activations of a transposed input are garbage")
def activation_transposed():
    x = torch.arange(6.0, device=DEVICE).view(2, 3).t()
    assert_values(
        F.softplus(x),
        [[0.6931, 3.0486], [1.3133, 4.0181], [2.1269, 5.0067]],
        atol=1e-4,
        rtol=0,
    )
    moved = torch.randn(2, 3, 4, 5).moveaxis(1, 3)
    on_both(F.selu, moved)
    on_both(lambda t: F.threshold(t, 0.1, 20.0), moved)
    on_both(F.prelu, torch.randn(2, 4, 3).transpose(1, 2), torch.tensor([0.1, 0.2, 0.3]))


@case("A05", "P#87348", "clamp with transposed bounds is wrong")
def clamp_transposed_bounds():
    low = tpu([[1.0, 2.0], [3.0, 4.0]]).t()
    high = torch.full((2, 2), 4.0, device=DEVICE).t()
    assert_values(tpu([[0.0, 5.0], [5.0, 0.0]]).clamp(low, high), [[1, 4], [4, 4]])


@case("A07", "P#183631", "filling a bool view at an offset shifts")
def fill_bool_view():
    x = torch.zeros(20, dtype=torch.bool, device=DEVICE)
    x[3:].fill_(True)
    assert_values(x, [False] * 3 + [True] * 17)


@case("A09", "P#99989", "a loop over elements from device to CPU writes only the first")
def element_loop():
    for dtype in (torch.float32, torch.float64, torch.int64):
        d = torch.arange(5.0, device=DEVICE) + 0.5 * (dtype != torch.int64)
        c = torch.zeros(5, dtype=dtype)
        for i in range(5):
            c[i] = d[i]
        assert torch.equal(c, d.cpu().to(dtype))


@case("A11", "P#78642", "an expanded CPU tensor uploads garbage")
def upload_expanded():
    assert_values(torch.tensor(1).expand(10).to(DEVICE), [1] * 10)


@case("A13", "P#98266, P#96558", "flipping a dim of size one flips another")
def flip_size_one():
    assert_values(tpu([[1, 2, 3]]).flip(0), [[1, 2, 3]])


@case("A15", "P#133520", "batch norm of a slice of the batch is wrong")
def batch_norm_slice():
    x = torch.randn(8, 3, 4, 4, device=DEVICE)
    assert_same(nn.BatchNorm2d(3).to(DEVICE)(x[2:5]), nn.BatchNorm2d(3).to(DEVICE)(x[2:5].clone()))


@case("A17", "P#190645", "BatchNorm3d aborts on a permuted input of five dims")
def batch_norm_permuted():
    x = torch.randn(2, 3, 4, 5, 6, device=DEVICE).permute(0, 4, 1, 2, 3)
    norm = nn.BatchNorm3d(6).to(DEVICE)
    out = norm(x)
    assert_same(out, nn.BatchNorm3d(6).to(DEVICE)(x.contiguous()))
    on_both(lambda t: F.batch_norm(t, None, None, training=True), torch.randn(2, 3, 4, 5, 6).permute(0, 4, 1, 2, 3))


@case("A19", "P#180984", "conv2d of a slice of channels_last channels is wrong")
def conv_channel_slice():
    x = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last).to(DEVICE)[:, 1:3]
    w = torch.randn(5, 2, 3, 3, device=DEVICE)
    assert_same(F.conv2d(x, w), F.conv2d(x.contiguous(), w))
    assert_same(F.conv2d(x, w), F.conv2d(x.cpu().contiguous(), w.cpu()))


@case("A21", "P#183419", "isfinite of a slice of columns corrupts its neighbours")
def isfinite_slice():
    before, big, after = (torch.full((8, 64), value, device=DEVICE) for value in (3.0, 1.0, 4.0))
    big[2, 7] = inf
    finite = big[:, 4:50].isfinite()
    assert finite.sum().item() == 8 * 46 - 1 and not finite[2, 3].item()
    assert_values(before, [[3.0] * 64] * 8)
    assert_values(after, [[4.0] * 64] * 8)


@case("A23", "X#514", "assignment to a strided slice is lost")
def strided_assignment():
    x = torch.zeros(2, 7, device=DEVICE)
    x[:, 1::3] = 7
    assert_values(x, [[0, 7, 0, 0, 7, 0, 0]] * 2)


@case("A25", "X#3394", "expand is no alias")
def expand_alias():
    x = tpu([5, 6])
    y = x.view(2, 1).expand(2, 3)
    x.mul_(2)
    assert_values(y, [[10] * 3, [12] * 3])


@case("A27", "X#3330", "assigning a tensor's own slice to its .data crashes")
def data_own_slice():
    t = torch.zeros(8, device=DEVICE)
    t.data = t.data[:3]
    assert t.shape == (3,)
    assert_values(t + 1, [1, 1, 1])


@case("A29", "X#2719", "a tie to a transposed weight is lost")
def transposed_tie():
    w = torch.zeros(2, 2, device=DEVICE)
    tied = nn.Parameter(w.t())
    w[0, 1] = 9
    assert_values(tied, [[0, 0], [9, 0]])


@case("A31", "torch-spyre#2803", "x[1::2] drops its offset")
def strided_rows():
    x = torch.arange(9.0, device=DEVICE).view(9, 1)
    assert_values(x[1::2] + x[1::2], [[2], [6], [10], [14]])


@case("A33", "optimum-habana#961", "indexing int64 uses strides of 32 bits")
def index_int64():
    x = torch.arange(10, device=DEVICE)
    assert [x[i].item() for i in range(10)] == list(range(10))


@case("A35", "X#5839", "writing an element through expand corrupts all")
def write_through_expand():
    x = torch.arange(6.0, device=DEVICE)
    y = x.expand(2, 6)
    y[0, 0] = 5
    assert_values(x, [5, 1, 2, 3, 4, 5])
    assert_values(y, [[5, 1, 2, 3, 4, 5]] * 2)


# ---- B. indexing, embedding, loss


@case("B01", "torch-spyre#3638", "index_add with repeated indices is wrong")
def index_add_repeated():
    rows = tpu([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0], [30.0, 40.0]])
    out = torch.zeros(3, 2, device=DEVICE).index_add(0, tpu([0, 2, 0, 2]), rows)
    assert_values(out, [[11, 22], [0, 0], [33, 44]])


@case("B03", "P#125100", "a mask of two dims on int64 is wrong")
def mask_int64():
    x = tpu([[1, 0, 2, -9], [3, -9, 4, 5]])
    assert_values(x[x != -9], [1, 0, 2, 3, 4, 5])


@case("B05", "P#195595", "unique's inverse is wrong past 2^24")
def unique_large():
    n = 2**24
    values, inverse = torch.unique(tpu([n + 1, n, n + 3, n + 1]), return_inverse=True)
    assert_values(values, [n, n + 1, n + 3])
    assert_values(inverse, [1, 0, 2, 1])


@case("B07", "P#189971", "embedding_bag takes an index that is too large")
def embedding_bag_out_of_range():
    weight = torch.randn(5, 2, device=DEVICE)
    torch.tpu.synchronize()  # what is recorded together fails together
    with pytest.raises((IndexError, RuntimeError)):
        F.embedding_bag(tpu([1, 5]), weight, tpu([0])).cpu()
    torch.tpu.synchronize()
    assert F.embedding_bag(tpu([1, 4]), weight, tpu([0])).cpu().isfinite().all()


@case("B09", "P#103023, torchax#11", "the row of padding_idx gets a gradient")
def padding_gradient():
    embedding = nn.Embedding(4, 2, padding_idx=3).to(DEVICE)
    embedding(tpu([3, 0, 0, 2, 3])).sum().backward()
    assert_values(embedding.weight.grad, [[2, 2], [0, 0], [1, 1], [0, 0]])


@case("B11", "P#190061, P#190063", "scale_grad_by_freq is ignored, or wrong for mixed counts")
def scale_by_frequency():
    for ids, rows, expected in (([2, 2, 2], 3, [0, 0, 1]), ([1, 1, 3], 4, [0, 1, 0, 1])):
        weight = torch.randn(rows, 1, device=DEVICE, requires_grad=True)
        F.embedding(tpu(ids), weight, scale_grad_by_freq=True).sum().backward()
        assert_values(weight.grad, [[row] for row in expected])


@case("B13", "P#82809", "embedding's backward of a 0-d index is wrong")
def embedding_scalar_index():
    weight = torch.randn(4, 2, device=DEVICE, requires_grad=True)
    F.embedding(tpu(2), weight).sum().backward()
    assert_values(weight.grad, [[0, 0], [0, 0], [1, 1], [0, 0]])


@case("B15", "X#880", "gather of an empty shape raises")
def gather_empty():
    x = torch.empty(0, 1, 2, 0, device=DEVICE)
    assert x.gather(1, torch.empty(0, 1, 2, 0, dtype=torch.int64, device=DEVICE)).shape == (0, 1, 2, 0)


@case("B17", "P#69339", "cross entropy with weights, smoothing and an ignored row is wrong")
def cross_entropy_ignored():
    logits = torch.randn(2, 4, device=DEVICE)
    weight = tpu([0.5, 1.0, 2.0, 4.0])
    both = F.cross_entropy(logits, tpu([1, -100]), weight, label_smoothing=0.1)
    assert_same(both, F.cross_entropy(logits[:1], tpu([1]), weight, label_smoothing=0.1))
    assert_same(both, F.cross_entropy(logits[:1].cpu(), torch.tensor([1]), weight.cpu(), label_smoothing=0.1))


# ---- C. integers, bool, dtypes


@case("C01", "P#90635", "cumsum is right for int32 alone")
def cumsum_integers():
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
        assert_values(torch.ones(4, dtype=dtype, device=DEVICE).cumsum(0), [1, 2, 3, 4])


@case("C03", "P#154171", "the remainder of integers goes through float32")
def remainder_exact():
    assert_values(tpu([50331653, -50331653]) % 7, [1, 6])
    assert_values(tpu([50331653, -50331653], torch.int32) % 7, [1, 6])


@case("C05", "P#144190, P#147889", "shifts are wrong")
def shifts():
    assert_values(tpu([255, 128], torch.uint8) >> 4, [15, 8])
    assert_values(1 << torch.arange(10, device=DEVICE), [2**i for i in range(10)])


@case("C07", "P#78091, P#79286, P#80009", "casts reinterpret bits")
def casts():
    assert_values(tpu(42.8).to(torch.int32), 42)
    assert_values(tpu(5.3).to(torch.bool).to(torch.float32), 1.0)
    assert_values(tpu([200], torch.uint8).to(torch.float32), [200.0])
    assert_values(tpu([3, -7]).to(torch.int32), [3, -7])
    assert_values(tpu([3, -7]).to(torch.float32), [3.0, -7.0])
    assert_values(tpu([True, False]).to(torch.int64), [1, 0])


@case("C09", "P#197715", "copying into CPU float64 or complex128 writes nothing")
def copy_to_wider_cpu():
    source = tpu([1.5, -2.0])
    for dtype in (torch.float64, torch.complex128):
        target = torch.zeros(2, dtype=dtype)
        target.copy_(source)
        assert torch.equal(target, torch.tensor([1.5, -2.0], dtype=dtype))


@case("C11", "P#94263", "masked_fill of bool with 5 gives False")
def masked_fill_bool():
    x = tpu([False, False])
    assert_values(x.masked_fill(tpu([True, False]), 5), [True, False])


@case("C13", "P#196067, P#140601", "lerp of float16 with a 0-d float32 weight")
def lerp_weight():
    start, end, weight = torch.zeros(3, dtype=torch.float16), torch.ones(3, dtype=torch.float16), torch.tensor(0.1)
    try:
        expected = start.clone().lerp_(end, weight)
    except RuntimeError:  # PyTorch 1.13 and some later ones refuse the mix: then so do we
        with pytest.raises(RuntimeError):
            start.to(DEVICE).lerp_(end.to(DEVICE), weight.to(DEVICE))
    else:
        assert_same(start.to(DEVICE).lerp_(end.to(DEVICE), weight.to(DEVICE)), expected)
    assert_values(start.to(DEVICE).lerp_(end.to(DEVICE), 0.1), [0.1] * 3, atol=1e-3, rtol=0)


@case("C15", "X#511", "clamp with a maximum alone floors at the smallest positive number")
def clamp_maximum():
    assert_values(tpu([1.0, 5.0, -3.0]).clamp(max=3.4), [1, 3.4, -3])


@case("C17", "X#2525", "argmax after a bfloat16 softmax gives the least int64")
def argmax_bfloat16():
    assert tpu([1.0, 3.0, 2.0], torch.bfloat16).softmax(0).argmax().item() == 1


# ---- D. NaN, infinity, complex, linear algebra


@case("D01", "P#130295, P#187039", "max, argmax and argmin skip NaN")
def nan_in_max():
    x = tpu([4.0, nan, 7.0, -1.0])
    assert x.max().isnan().item()
    assert x.argmax().item() == 1
    assert x.argmin().item() == 1
    values, indices = x.max(0)
    assert values.isnan().item() and indices.item() == 1


@case("D03", "X#2330", "clamp of NaN gives the minimum")
def clamp_nan():
    assert_values(tpu([nan, 1.0]).clamp(0.0, 0.5), [nan, 0.5])


@case("D05", "P#94043", "log_softmax gives -inf")
def log_softmax_range():
    assert_values(tpu([-245.0, 75.0, 58.0]).log_softmax(0), [-320, 0, -17], atol=1e-4, rtol=0)


@case("D07", "P#163851", "a NaN coordinate in grid_sample")
def grid_sample_nan():
    grid = torch.zeros(1, 2, 2, 2, 3)
    grid[0, 0, 0, 0, 1] = nan
    on_both(lambda x, g: F.grid_sample(x, g, align_corners=False), torch.randn(1, 2, 3, 3, 3), grid)


@case("D09", "P#194813", "a power of complex zero is NaN")
def complex_zero_power():
    zero = tpu([0j])
    assert_values(zero**0, [1 + 0j])
    assert_values(zero**1, [0j])
    assert_values(zero**2, [0j])


@case("D11", "P#125135", "abs of complex reads with the stride of real")
def complex_abs():
    assert_values(tpu([3 + 4j, 5 + 0j]).abs(), [5, 5])
    assert_values(tpu([[3 + 4j, 0j], [5 + 0j, 0j]])[:, 0].abs(), [5, 5])


@case("D13", "P#146753", "batched LU is wrong")
def batched_lu():
    a = torch.eye(256) + 1e-3 * torch.randn(256, 256)
    lu, pivots = torch.linalg.lu_factor(a.to(DEVICE).expand(2, 256, 256))
    one, one_pivots = torch.linalg.lu_factor(a)
    for i in range(2):
        assert_same(lu[i], one)
        assert_same(pivots[i], one_pivots)


@case("D15", "X#3553, X#7050, jax#9973", "float32 products are bfloat16 in secret")
def product_precision():
    assert torch.get_float32_matmul_precision() == "highest"
    a, b = tpu([[0.3711, 0.1823]]), tpu([[0.4127], [0.2319]])
    assert_values(a @ b, [[0.195428]], atol=1e-6, rtol=0)


# ---- E. empty, 0-d, rank, reductions


@case("E01", "P#104694, P#139400", "reductions of nothing give garbage")
def reduce_empty():
    empty = torch.empty(0, device=DEVICE)
    assert empty.to(torch.bool).all().item() is True
    assert empty.to(torch.bool).any().item() is False
    assert empty.sum().item() == 0 and empty.prod().item() == 1
    assert torch.count_nonzero(torch.empty(0, 2, 2, device=DEVICE)).item() == 0
    assert empty.mean().isnan().item()
    with pytest.raises(RuntimeError):
        empty.max()
    with pytest.raises(IndexError):
        empty.max(0)


@case("E03", "P#187399", "baddbmm with a size of zero is wrong")
def baddbmm_empty():
    out = torch.baddbmm(
        torch.ones(2, 3, 4, device=DEVICE),
        torch.empty(2, 3, 0, device=DEVICE),
        torch.empty(2, 0, 4, device=DEVICE),
        beta=0.5,
    )
    assert_values(out, [[[0.5] * 4] * 3] * 2)
    shaped = torch.baddbmm(
        torch.ones(2, 0, 1, device=DEVICE), torch.empty(2, 0, 3, device=DEVICE), torch.empty(2, 3, 1, device=DEVICE)
    )
    assert shaped.shape == (2, 0, 1)


@case("E05", "P#160738", "a 0-d tensor reduced along dim 0")
def reduce_scalar():
    x = tpu(2.5)
    assert x.var(0).isnan().item()
    assert x.sum(0).item() == 2.5 and x.cumsum(0).item() == 2.5
    assert x.softmax(0).item() == 1


@case("E07", "P#154881, P#154890", "cumsum and topk of five dims along dim 0 abort")
def five_dims():
    assert_values(torch.ones(3, 2, 2, 2, 2, device=DEVICE).cumsum(0)[-1], torch.full((2, 2, 2, 2), 3.0).tolist())
    x = torch.randn(5, 4, 3, 2, 1)
    values, indices = x.to(DEVICE).topk(5, dim=0)
    assert values.shape == indices.shape == (5, 4, 3, 2, 1)
    assert_same(values, x.sort(0, descending=True).values)
    on_both(lambda t: t.topk(2, dim=0).values, x)


@case("E09", "P#97231", "dim=[] poisons a cache of kernels")
def norm_without_dims():
    x = tpu([[1.0, 2.0, 3.0]])
    for order in (([], 0), (0, [])):
        for dim in order:
            if dim == []:
                assert_values(torch.linalg.vector_norm(x, dim=dim), 3.7417, atol=1e-4, rtol=0)
            else:
                assert_values(torch.linalg.vector_norm(x, dim=dim), [1, 2, 3])


@case("E11", "P#160734", "clamp bounds of a higher rank")
def clamp_rank():
    assert torch.randn(2, 3, device=DEVICE).clamp(torch.zeros(1, 2, 3, device=DEVICE)).shape == (1, 2, 3)
    on_both(lambda x, low: x.clamp(low), torch.randn(2, 3), torch.zeros(1, 2, 3))


# ---- F. operators of neural networks


@case("F01", "P#82921, P#83180", "convolutions with strides other than one, or uneven ones")
def convolution_strides():
    x = torch.arange(8.0, device=DEVICE).view(1, 1, 8)
    w = tpu([[[1.0, 10.0, 100.0]]])
    assert_values(F.conv1d(x, w, stride=2), [[[210, 432, 654]]])
    image = torch.arange(18.0, device=DEVICE).view(1, 1, 3, 6)
    kernel = torch.ones(1, 1, 3, 3, device=DEVICE)
    assert_values(F.conv2d(image, kernel, stride=(1, 2)), [[[[63, 81]]]])


@case("F03", "P#129207", "more than 65536 channels out")
def many_channels():
    layer = nn.Conv1d(1, 65537, 3)
    x = torch.randn(1, 1, 5)
    expected = layer(x)
    out = layer.to(DEVICE)(x.to(DEVICE))
    assert out.shape == (1, 65537, 3)
    assert_same(out[:, 0], expected[:, 0])
    assert_same(out[:, -1], expected[:, -1])
    assert_same(out, expected)


@case("F05", "P#124591, P#80856", "padding or upsampling and then a convolution")
def pad_then_convolve():
    w1, w2 = torch.randn(2, 3, 3), torch.randn(2, 3, 3, 3)
    on_both(lambda x, w: F.conv1d(F.interpolate(x, scale_factor=2), w), torch.randn(2, 3, 5), w1)
    on_both(lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), w), torch.randn(2, 3, 5, 5), w2)


@case("F07", "P#144245", "linear interpolation with align_corners from one element is NaN")
def interpolate_width_one():
    x = tpu([[[2.0], [9.0]]])
    out = F.interpolate(x, size=4, mode="linear", align_corners=True)
    assert_values(out, [[[2.0] * 4, [9.0] * 4]])


@case("F09", "P#154882, P#161011", "pooling with ceil_mode")
def ceil_mode():
    assert F.max_pool2d(torch.randn(1, 1, 4, 6, device=DEVICE), 1, 2, ceil_mode=True).shape == (1, 1, 2, 3)
    average = F.avg_pool1d(tpu([[[1.0, 2.0, 3.0, 4.0, 5.0]]]), 2, ceil_mode=True)
    assert_values(average, [[[1.5, 3.5, 5.0]]])


@case("F11", "P#94754, P#95137", "a bidirectional LSTM with batch_first and given states")
def lstm_batch_first():
    torch.manual_seed(0)
    first = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True).to(DEVICE)
    time_major = nn.LSTM(3, 4, num_layers=2, bidirectional=True).to(DEVICE)
    time_major.load_state_dict(first.state_dict())
    x, h, c = (torch.randn(*shape, device=DEVICE) for shape in ((2, 5, 3), (4, 2, 4), (4, 2, 4)))
    out, (h1, c1) = first(x, (h, c))
    expected, (h2, c2) = time_major(x.transpose(0, 1), (h, c))
    assert_same(out, expected.transpose(0, 1))
    assert_same(h1, h2)
    assert_same(c1, c2)
    on_cpu, _ = first.cpu()(x.cpu(), (h.cpu(), c.cpu()))
    assert_same(out, on_cpu)


@case("F13", "P#190056, P#190057", "the gradient through an LSTM's dropout; NaN at p=1")
def lstm_dropout():
    torch.manual_seed(0)
    layer = nn.LSTM(2, 3, num_layers=2, dropout=0.5).to(DEVICE, torch.float64)
    x = torch.randn(4, 1, 2, device=DEVICE, dtype=torch.float64, requires_grad=True)

    def loss(value):
        torch.manual_seed(7)
        return layer(value)[0].square().sum()

    (gradient,) = torch.autograd.grad(loss(x), x)
    with torch.no_grad():
        for i in range(4):
            step = torch.zeros_like(x)
            step[i, 0, 1] = 1e-5
            slope = (loss(x + step) - loss(x - step)) / 2e-5
            assert_same(slope, gradient[i, 0, 1], atol=1e-7, rtol=1e-5)
    all_dropped = nn.LSTM(2, 3, num_layers=2, dropout=1.0).to(DEVICE)
    y = torch.randn(4, 1, 2, device=DEVICE, requires_grad=True)
    out = all_dropped(y)[0]
    out.sum().backward()
    assert out.isfinite().all().item() and y.grad.isfinite().all().item()


@case("F15", "P#156707", "attention of a fully masked row is NaN")
def attention_masked_row():
    q, k, v = (torch.randn(1, 1, 2, 4, device=DEVICE) for _ in range(3))
    mask = tpu([[False, False], [True, True]])
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_values(out[0, 0, 0], [0.0] * 4)
    assert_same(out, F.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu(), attn_mask=mask.cpu()))


@case("F17", "P#195910", "is_causal leaks the future in half precision")
def attention_causal():
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (torch.randn(1, 2, 8, 16, device=DEVICE, dtype=dtype) for _ in range(3))
        before = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        k2, v2 = k.clone(), v.clone()
        k2[:, :, 5:] += 3
        v2[:, :, 5:] -= 3
        after = F.scaled_dot_product_attention(q, k2, v2, is_causal=True)
        assert torch.equal(before[:, :, :5], after[:, :, :5])
        assert not torch.equal(before[:, :, 5:], after[:, :, 5:])


@case("F19", "P#142344", "conv1d's backward with a transposed gradient")
def convolution_transposed_gradient():
    gradients = []
    for contiguous in (False, True):
        torch.manual_seed(0)
        x = torch.randn(2, 3, 8, device=DEVICE, requires_grad=True)
        w = torch.randn(4, 3, 3, device=DEVICE, requires_grad=True)
        upstream = torch.randn(2, 6, 4, device=DEVICE).transpose(1, 2)
        F.conv1d(x, w).backward(upstream.contiguous() if contiguous else upstream)
        gradients.append((x.grad, w.grad))
    for one, other in zip(*gradients, strict=True):
        assert_same(one, other)


@case("F21", "P#117826", "the gradient of einsum bij,ijk->bik")
def einsum_gradient():
    a = torch.randn(2, 3, 4, device=DEVICE, requires_grad=True)
    b = torch.randn(3, 4, 5, device=DEVICE, requires_grad=True)
    weight = torch.randn(2, 3, 5, device=DEVICE)
    (torch.einsum("bij,ijk->bik", a, b) * weight).sum().backward()
    a2, b2 = (t.detach().clone().requires_grad_() for t in (a, b))
    stacked = torch.stack([a2[:, i] @ b2[i] for i in range(3)], dim=1)
    (stacked * weight).sum().backward()
    assert_same(a.grad, a2.grad)
    assert_same(b.grad, b2.grad)


@case("F23", "P#180776, P#78035", "the same call gives other numbers")
def linear_repeats():
    x = torch.randn(2, 13, 1024, device=DEVICE, dtype=torch.bfloat16)
    w = torch.randn(256, 1024, device=DEVICE, dtype=torch.bfloat16)
    assert torch.equal(F.linear(x, w), F.linear(x, w))


# ---- G. random numbers


@case("G01", "P#78110, P#78009", "randn repeats itself")
def draws_differ():
    assert not torch.equal(torch.randn(16, device=DEVICE), torch.randn(16, device=DEVICE))


@case("G03", "P#99802, P#92752", "multinomial gives 0 or the least int64")
def multinomial_certain():
    assert_values(torch.multinomial(tpu([0.0, 0.5]), 64, replacement=True), [1] * 64)
    assert_values(torch.multinomial(tpu([0.0, 100.0, 0.0]), 1), [1])


@case("G05", "X#8636, X#1932, P#185351", "random numbers freeze in a program that is used again")
def draws_not_frozen():
    x = torch.ones(64, device=DEVICE)
    layer = nn.LSTM(4, 4, num_layers=2, dropout=0.5).to(DEVICE)
    sequence = torch.ones(3, 1, 4, device=DEVICE)
    for call in (lambda: F.dropout(x, 0.5), lambda: layer(sequence)[0].detach()):
        torch.manual_seed(3)
        first, second, third = call(), call(), call()
        assert not torch.equal(first, second) and not torch.equal(second, third) and not torch.equal(first, third)
        torch.manual_seed(3)
        assert torch.equal(call(), first)


# ---- H. torch.compile


@case("H01", "P#170360", "a broadcast difference, then its sum, comes out doubled")
def broadcast_difference_sum():
    compiled = torch.compile(lambda x, y: (x[:, None] - y[None, :]).sum())
    assert_values(compiled(torch.arange(3.0, device=DEVICE), torch.arange(4.0, device=DEVICE)), -6)


@case("H03", "P#178019", "constants of a graph are made on the CPU and moved each time")
def constants_stay_on_the_device():
    compiled = torch.compile(lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device))
    x = torch.zeros(3, device=DEVICE)
    assert_values(compiled(x), [1, 2, 3])
    torch.tpu.synchronize()
    torch.tpu.reset_counters()
    result = compiled(x)
    assert torch.tpu.counters()["uploads"] == 0
    assert_values(result, [1, 2, 3])


@case("H05", "X#5410, X#7933", "a mutated input is changed twice, or by an extra run")
def input_is_changed_once():
    compiled, x = torch.compile(lambda x: x.add_(1)), torch.zeros(3, device=DEVICE)
    for _ in range(3):
        compiled(x)
    assert_values(x, [3, 3, 3])


@case("H07", "tt-xla PR#3521, P#122969", "a compiled model's weights stay in memory after it is deleted")
def weights_are_freed():
    def in_use() -> int:
        gc.collect()
        torch.tpu.synchronize()
        return torch.tpu.memory_allocated()

    torch._dynamo.reset()
    before = in_use()
    model = nn.Linear(512, 512).to(DEVICE)
    compiled = torch.compile(model)
    compiled(torch.randn(2, 512, device=DEVICE)).sum().backward()
    assert in_use() - before >= 2 * 4 * 512 * 512
    del model, compiled
    torch._dynamo.reset()
    assert in_use() - before < 1 << 16


@case("H09", "X#7622", "every new length compiles again")
def lengths_compile_a_bounded_number_of_times():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("tpu")
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()).to(DEVICE)
    compiled = torch.compile(model, backend=counter)
    for length in range(3, 23):
        x = torch.randn(length, 8, device=DEVICE)
        assert torch.equal(compiled(x), model(x))
    assert counter.frame_count <= 2


# ---- I. memory, asynchrony, files


@case("I01", "P#189690, P#139550", "an upload with non_blocking reads a source that is gone")
def upload_rebound():
    for i in range(20):
        source = torch.full((1000,), float(i))
        moved = source.to(DEVICE, non_blocking=True)
        source.fill_(-1.0)
        del source
        torch.full((1000,), -2.0)
        assert_values(moved, [float(i)] * 1000)


@case("I05", "P#153022", "the second device gives NaN")
def second_device():
    out = in_fresh_python(
        "import torch, torch_tpu\n"
        "torch.manual_seed(0)\n"
        "Linear = torch.nn.Linear\n"
        "model, x = torch.nn.Sequential(Linear(4, 8), torch.nn.GELU(), Linear(8, 2)), torch.randn(3, 4)\n"
        "results = [model.to(f'tpu:{i}')(x.to(f'tpu:{i}')).cpu() for i in (0, 1)]\n"
        "assert torch.equal(*results) and results[0].isfinite().all()\n"
        "print('equal')",
        TTPU_TOPOLOGY="v5e:2x2",
    )
    assert out.stdout.split() == ["equal"]


@case("I07", "transformers#27578, safetensors#349", "storages cannot be told apart, so tied weights are not found")
def storages_identified():
    a, b = torch.zeros(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    assert len({a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr(), 0}) == 3
    assert a.view(2, 2).untyped_storage().data_ptr() == a.untyped_storage().data_ptr()

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

    model = Tied().to(DEVICE)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        save_model(model, path)
        other = Tied().to(DEVICE)
        load_model(other, path)
    assert torch.equal(other.head.weight, model.embedding.weight)
    assert other.head.weight is other.embedding.weight


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_lstm_varying_lengths_leak_nothing(no_fallback):
    """I03, P#121113, P#145374: a thousand LSTM steps of varying lengths leave resident memory flat."""
    layer = nn.LSTM(4, 8).to(DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    lengths = numpy.random.default_rng(0).integers(2, 8, 1000)
    resident = []
    for step, length in enumerate(lengths):
        optimizer.zero_grad()
        layer(torch.randn(int(length), 2, 4, device=DEVICE))[0].sum().backward()
        optimizer.step()
        if step % 100 == 99:
            torch.tpu.synchronize()
            resident.append(resident_bytes())
    assert resident[-1] - resident[2] < 16 << 20, [f"{r >> 20} MiB" for r in resident]
