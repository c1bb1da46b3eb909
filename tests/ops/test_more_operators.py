"""Operators that PyTorch's database has not, or not in all their forms: results, metadata and errors as on the CPU."""

import math

import pytest

import torch

A = torch.ops.aten
FLOATS = [torch.float32, torch.float64]


def to_tpu(value):
    if isinstance(value, torch.Tensor):
        return value.to("tpu")
    return [to_tpu(v) for v in value] if isinstance(value, list) else value


def compare(operator, *arguments, rtol=None, atol=None, **named):
    """Call on the CPU and on tpu; values, sizes, strides and dtypes of all results must agree."""
    expected = operator(*arguments, **named)
    found = operator(*[to_tpu(a) for a in arguments], **{name: to_tpu(a) for name, a in named.items()})
    if isinstance(expected, torch.Tensor):
        expected, found = [expected], [found]
    assert len(expected) == len(found)
    for e, f in zip(expected, found, strict=True):
        assert f.device.type == "tpu"
        assert (f.dtype, f.shape, f.stride()) == (e.dtype, e.shape, e.stride())
        torch.testing.assert_close(f.cpu(), e, equal_nan=True, rtol=rtol, atol=atol)


def error_of(function, *arguments) -> type | None:
    try:
        for result in function(*arguments):
            result.cpu()
    except Exception as error:
        return type(error)
    return None


# ---- distinct slices ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(4, 5, 3), (50, 9), (6,), (1, 1), (0, 3)])
def test_distinct_slices(dtype, shape):
    x = torch.randint(0, 2, shape).to(dtype)
    for dim in range(-1, len(shape)):
        if shape[dim] != 0 and 0 in shape:
            continue
        compare(A.unique_dim, x, dim)
        compare(A.unique_dim_consecutive, x, dim, True, True)
        compare(A.unique_consecutive, x, True, True, dim)


def test_distinct_slices_that_the_cpu_refuses():
    for shape in ((3, 0), ()):
        x = torch.zeros(shape)
        assert error_of(A.unique_dim, x, 0) is not None
        assert error_of(A.unique_dim, x.to("tpu"), 0) is error_of(A.unique_dim, x, 0)


# ---- histograms ----


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [0, 1, 500])
@pytest.mark.parametrize("options", ["", "weight", "density"])
def test_histograms(dtype, count, options):
    x, edges = torch.randn(count, dtype=dtype), torch.tensor([-1, -0.5, 0, 0.1, 2], dtype=dtype)
    named = {"weight": torch.rand(count, dtype=dtype)} if options == "weight" else {"density": options == "density"}
    for limits in (None, (-1.0, 1.0), (0.0, 0.0), (-3, 3)):
        compare(A.histogram.bin_ct, x, 17, range=limits, **named)
    compare(A.histogram.bins_tensor, x, edges, **named)
    points = torch.randn(count, 3, dtype=dtype)
    for limits in (None, (-1.0, 1.0, -2.0, 2.0, 0.0, 3.0)):
        compare(A._histogramdd_bin_edges, points, (3, 4, 5), range=limits, **named)
        compare(A._histogramdd_from_bin_cts, points, (3, 4, 5), range=limits, **named)
    lists = [torch.linspace(-2, 2, n, dtype=dtype) for n in (3, 4, 6)]
    compare(A._histogramdd_from_bin_tensors, points, lists, **named)


def test_histogram_writes_and_resizes_out():
    x = torch.randn(50)
    out = (torch.empty(3, device="tpu"), torch.empty(0, device="tpu"))
    torch.histogram(x.to("tpu"), 7, out=out)
    for found, expected in zip(out, torch.histogram(x, 7), strict=True):
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.histogram(x, 3, range=(3.0, 1.0)),
        lambda x: torch.histogram(x, 3, range=(0.0, math.inf)),
        lambda x: torch.histogram(x, 0),
        lambda x: torch.histogram(x * math.nan, 3),
        lambda x: torch.histogram(x.int(), 3),
        lambda x: torch.histogram(x, 3, weight=x[:2]),
    ],
)
def test_histograms_that_the_cpu_refuses(call):
    x = torch.rand(4)
    assert error_of(call, x) is not None
    assert error_of(call, x.to("tpu")) is error_of(call, x)


# ---- samples ----


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_samples(dtype):
    torch.manual_seed(0)
    exact = dtype == torch.float64
    shape = torch.logspace(-3, 3, 61, dtype=dtype)[:, None].expand(61, 50)
    samples = torch._standard_gamma(shape)
    compare(torch._standard_gamma_grad, shape, samples, rtol=1e-9 if exact else 1e-4, atol=1e-9 if exact else 1e-5)
    shape = torch.logspace(-1, 3, 41, dtype=dtype)[:, None, None].repeat(1, 30, 2)
    shape[..., 1] = torch.logspace(-1, 3, 30)
    total = shape.sum(-1, keepdim=True).expand_as(shape)
    samples = torch._sample_dirichlet(shape)
    # the CPU works in float32 where terms cancel
    compare(torch._dirichlet_grad, samples, shape, total, rtol=1e-6 if exact else 2e-3, atol=1e-7 if exact else 1e-4)


@pytest.mark.parametrize("count, p", [(1, 0.5), (10, 0.3), (1000, 0.9), (5000, 0.7), (1e6, 0.001)])
def test_binomial_has_the_moments_of_its_distribution(count, p):
    torch.manual_seed(1)
    n = 100000
    x = torch.binomial(torch.full((n,), float(count), device="tpu"), torch.full((n,), p, device="tpu")).double().cpu()
    z = (x - count * p) / math.sqrt(count * p * (1 - p))
    assert bool((x == x.floor()).all()) and x.min() >= 0 and x.max() <= count
    assert abs(z.mean()) < 0.02 and abs(z.var() - 1) < 0.03
    assert abs((z**3).mean() - (1 - 2 * p) / math.sqrt(count * p * (1 - p))) < 0.06


def test_binomial_at_the_ends_of_its_parameters():
    counts = torch.tensor([3.0, 2.0, 0.0, 5.0, 7.0])
    shares = torch.tensor([math.nan, 2.0, 0.5, 0.0, 1.0])
    compare(torch.binomial, counts, shares)
    broadcast = torch.binomial(torch.full((3,), 4.0, device="tpu"), torch.full((2, 1), 0.5, device="tpu"))
    assert broadcast.shape == (2, 3)
    with pytest.raises(ValueError):
        torch.binomial(torch.ones(2, dtype=torch.int64, device="tpu"), torch.ones(2, device="tpu"))


# ---- networks ----


@pytest.mark.parametrize("dtype", FLOATS)
def test_glu_forward_derivatives(dtype):
    x, dx, g, dg, y = (torch.randn(*sizes, dtype=dtype) for sizes in ((4, 6), (4, 6), (4, 3), (4, 3), (4, 3)))
    compare(A.glu_jvp, y, x, dx, -1)
    compare(A.glu_backward_jvp, A.glu_backward(g, x, 1), g, x, dg, dx, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_batch_norm_update_stats(dtype):
    x = torch.randn(4, 6, 5, dtype=dtype)
    running = [(torch.zeros(6, dtype=dtype), torch.ones(6, dtype=dtype)) for _ in range(2)]
    for pair in running:
        A.batch_norm_update_stats(x, *pair, 0.1)
    compare(A.batch_norm_update_stats, x, None, None, 0.1)
    on_tpu = [t.to("tpu") for t in (torch.zeros(6, dtype=dtype), torch.ones(6, dtype=dtype))]
    A.batch_norm_update_stats(x.to("tpu"), *on_tpu, 0.1)
    for found, expected in zip(on_tpu, running[0], strict=True):
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_parts(dtype, affine):
    """What SyncBatchNorm calls, without kernels on the CPU: batches of 4 and 3 beside one of 7 in double precision."""
    parts, grads = ([torch.randn(n, 6, 5).to(dtype) for n in (4, 3)] for _ in range(2))
    parts[1] = parts[1].transpose(0, 2).contiguous().transpose(0, 2)
    weight, bias = (torch.randn(6).to(dtype) if affine else None for _ in range(2))
    exact = [torch.cat(parts).double(), *(t.double() if affine else None for t in (weight, bias))]
    for t in exact:
        if t is not None:
            t.requires_grad_()
    running = [torch.full((6,), 0.5), torch.full((6,), 2.0)]
    expected_running = [t.double() for t in running]
    expected = torch.nn.functional.batch_norm(exact[0], *expected_running, *exact[1:], True, 0.1, 1e-5)
    expected.backward(torch.cat(grads).double())

    def on_tpu(*tensors):
        return [None if t is None else t.to("tpu") for t in tensors]

    close = {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}
    x, g, (weight, bias), running = on_tpu(*parts), on_tpu(*grads), on_tpu(weight, bias), on_tpu(*running)
    means, deviations = map(torch.stack, zip(*(A.batch_norm_stats(part, 1e-5) for part in x), strict=True))
    assert means.dtype == torch.promote_types(dtype, torch.float32)
    counts = torch.tensor([20, 15], device="tpu")
    mean, deviation = A.batch_norm_gather_stats_with_counts(
        x[0], means, deviations, *running, 0.1, 1e-5, counts.to(means.dtype)
    )
    for found, wanted in zip(running, expected_running, strict=True):
        torch.testing.assert_close(found.cpu().double(), wanted, atol=1e-6, rtol=1e-6)
    found = torch.cat([A.batch_norm_elemt(part, weight, bias, mean, deviation, 1e-5) for part in x])
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu().double(), expected.detach(), **close)
    sums = [
        A.batch_norm_backward_reduce(dy, part, mean, deviation, weight, True, affine, affine)
        for dy, part in zip(g, x, strict=True)
    ]
    assert (sums[0][2] is None) == (sums[0][3] is None) == (not affine)
    for i in range(1, 3) if affine else ():
        torch.testing.assert_close((sums[0][1 + i] + sums[1][1 + i]).cpu().double(), exact[i].grad, **close)
    dy, dy_x = (sums[0][i] + sums[1][i] for i in range(2))
    arguments = mean, deviation, weight, dy, dy_x, counts.int()
    found = torch.cat([A.batch_norm_backward_elemt(d, part, *arguments) for d, part in zip(g, x, strict=True)])
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu().double(), exact[0].grad, **close)
    # with one count for all
    half = on_tpu(parts[0][:2]), on_tpu(parts[0][2:])
    means, deviations = map(torch.stack, zip(*(A.batch_norm_stats(part, 1e-5) for (part,) in half), strict=True))
    mean, deviation = A.batch_norm_gather_stats(x[0], means, deviations, None, None, 0.1, 1e-5, 10)
    for found, wanted in zip((mean, deviation), A.batch_norm_stats(x[0], 1e-5), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", FLOATS)
def test_pools_and_attention_inputs(dtype):
    x, volume = torch.randn(2, 3, 5, 7, dtype=dtype), torch.randn(2, 3, 4, 5, 6, dtype=dtype)
    for out in (torch.empty(2, 3, 2, 3, dtype=dtype), torch.empty(0, dtype=dtype)):
        compare(lambda x, out: A.adaptive_avg_pool2d.out(x, (2, 3), out=out), x, out)
    compare(lambda x, out: A.adaptive_avg_pool3d.out(x, (2, 3, 2), out=out), volume, torch.empty(0, dtype=dtype))
    backward = A.adaptive_avg_pool3d_backward.grad_input
    g = torch.randn(2, 3, 2, 3, 2, dtype=dtype)
    compare(lambda g, x, out: backward(g, x, grad_input=out), g, volume, torch.empty(0, dtype=dtype))
    compare(A._transform_bias_rescale_qkv, torch.randn(2, 3, 12, dtype=dtype), torch.randn(12, dtype=dtype), 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(5, 7), (20, 30), (9, 4)])
def test_lanczos(dtype, size):
    compare(A._upsample_lanczos2d_aa, torch.rand(2, 3, 9, 11, dtype=dtype), size, False)
    compare(A._upsample_lanczos2d_aa_backward, torch.rand(2, 3, *size, dtype=dtype), size, (2, 3, 9, 11), False)


# ---- linear algebra ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("upper", [False, True])
def test_solutions_from_cholesky_factors(dtype, n, upper):
    a = torch.randn(2, n, n, dtype=dtype)
    factor = torch.linalg.cholesky(a @ a.mH + n * torch.eye(n, dtype=dtype), upper=upper)
    compare(torch.cholesky_inverse, factor, upper)
    compare(torch.cholesky_solve, torch.randn(3, 1, n, 3, dtype=dtype), factor, upper)


def test_linear_combinations_and_multivariate_gamma():
    compare(A._compute_linear_combination, torch.randn(3, 2, 2), torch.randn(4, 3))
    compare(lambda x, out: A.mvlgamma.out(x, 3, out=out), torch.rand(5) + 3, torch.empty(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.uint8, torch.bool])
def test_hash_tensor(dtype):
    x = (torch.randn(3, 4, 2) * 50).to(dtype)
    for named in ({}, {"dim": 1}, {"dim": (0, 2), "keepdim": True}):
        compare(torch.hash_tensor, x, **named)


# ---- fake quantisation ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_fake_quantisation(dtype):
    x = torch.tensor([-3, -0.25, 0, 0.05, 0.15, 0.25, 0.35, 7, math.nan, math.inf, -math.inf]).to(dtype)
    scale, zero, on = torch.tensor([0.1]), torch.tensor([2], dtype=torch.int32), torch.tensor([1])
    compare(A.fake_quantize_per_tensor_affine_cachemask, x, 0.1, 2, -8, 7)
    by_tensors = A._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    for enabled in (on, on * 0):
        compare(by_tensors, x, scale, zero, enabled, -8, 7)
        compare(by_tensors, x, scale, torch.tensor([2.5]), enabled, -8, 7)
    x = torch.randn(3, 4, 2).to(dtype)
    scale, zero = torch.rand(4) + 0.1, torch.tensor([0, 1, -2, 3], dtype=torch.int32)
    compare(A.fake_quantize_per_channel_affine_cachemask, x, scale, zero, 1, -8, 7)
    compare(A.fake_quantize_per_channel_affine_cachemask, x, scale, torch.rand(4), 1, -8, 7)
    compare(A.fake_quantize_per_channel_affine_cachemask, x.transpose(0, 2), scale, zero, 1, -8, 7)


def test_fake_quantisation_with_learned_parameters():
    x, g = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    one = torch.tensor([0.1]), torch.tensor([2.4])
    four = torch.rand(4) * 0.1 + 0.05, torch.rand(4) * 4
    compare(A._fake_quantize_learnable_per_tensor_affine, x, *one, -8, 7, 0.5)
    compare(A._fake_quantize_learnable_per_channel_affine, x, *four, 1, -8, 7, 0.5)
    compare(A._fake_quantize_learnable_per_tensor_affine_backward, g, x, *one, -8, 7, 0.5, rtol=1e-5, atol=1e-5)
    compare(A._fake_quantize_learnable_per_channel_affine_backward, g, x, *four, 1, -8, 7, 0.5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_with_int8_weights(dtype):
    weight = torch.randint(-128, 128, (6, 32), dtype=torch.int8)
    compare(A._weight_int8pack_mm, torch.randn(3, 32).to(dtype), weight, torch.rand(6).to(dtype), rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_margin_losses_without_dimensions(reduction):
    for sizes, target_sizes in ((s, t) for s in ((), (1,)) for t in ((), (1,))):
        x, target = torch.full(sizes, 0.5), torch.zeros(target_sizes, dtype=torch.int64)
        compare(A.multi_margin_loss, x, target, 1, 1.0, None, reduction)
        compare(A.multilabel_margin_loss_forward, x, target, reduction)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduce", ["mean", "prod"])
def test_index_reduce_rounds_after_each_element(dtype, reduce):
    torch.manual_seed(0)
    source, index = torch.rand(60, 3).add(0.5).to(dtype), torch.arange(60) % 4
    compare(torch.index_reduce, torch.ones(4, 3, dtype=dtype), 0, index, source, reduce, rtol=0, atol=0)


def test_attention_without_a_gradient_of_its_output():
    """Autograd may hand on no gradient at all: then there is none, as of the CPU's kernels."""
    q, k, v = (torch.rand(1, 2, 4, 8, device="tpu", requires_grad=True) for _ in range(3))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    gradients = torch.autograd.grad(
        torch._C._functions.UndefinedGrad()(y), (q, k, v), torch.ones_like(y), allow_unused=True
    )
    assert all(g is None or not g.any() for g in gradients)


def test_transformer_encoder_with_a_padding_mask():
    """In evaluation PyTorch would make a nested tensor of the rows."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x, mask = torch.rand(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=mask)
        actual = encoder.to("tpu")(x.to("tpu"), src_key_padding_mask=mask.to("tpu")).cpu()
    torch.testing.assert_close(actual[~mask], expected[~mask])
