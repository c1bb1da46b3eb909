"""Random numbers: the state, seeds, generators, and that every draw is new."""

import warnings

import numpy as np
import pytest
from scipy import stats
from support import in_fresh_python

import torch

DRAWS = {
    "rand": lambda: torch.rand(100, device="tpu"),
    "randn": lambda: torch.randn(101, device="tpu"),
    "randint": lambda: torch.randint(1000, (100,), device="tpu"),
    "randperm": lambda: torch.randperm(100, device="tpu"),
    "normal_": lambda: torch.empty(100, device="tpu").normal_(2, 3),
    "uniform_": lambda: torch.empty(100, device="tpu").uniform_(-1, 1),
    "bernoulli": lambda: torch.full((100,), 0.5, device="tpu").bernoulli(),
    "bernoulli_": lambda: torch.empty(100, device="tpu").bernoulli_(0.3),
    "exponential_": lambda: torch.empty(100, device="tpu").exponential_(),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(100, device="tpu")),
    "multinomial": lambda: torch.multinomial(torch.ones(100, device="tpu"), 50),
    "random_": lambda: torch.empty(100, dtype=torch.int64, device="tpu").random_(10**6),
}


@pytest.fixture(params=DRAWS.values(), ids=DRAWS)
def draw(request):
    return request.param


def test_same_seed_same_numbers(draw):
    torch.manual_seed(5)
    first, second = draw(), draw()
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(draw(), first) and torch.equal(draw(), second)
    torch.manual_seed(6)
    assert not torch.equal(draw(), first)


def test_state_saved_and_restored(draw):
    draw()
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu" and state.shape == (16,)
    expected = draw()
    torch.tpu.set_rng_state(state)
    assert torch.equal(draw(), expected)


def test_state_is_seed_and_offset():
    torch.manual_seed(1234)
    assert torch.tpu.get_rng_state().view(torch.int64).tolist() == [1234, 0]
    torch.rand(8, device="tpu")
    seed, offset = torch.tpu.get_rng_state().view(torch.int64).tolist()
    assert seed == 1234 and offset > 0 and offset % 4 == 0


def test_numbers_do_not_depend_on_how_they_are_run(draw):
    results = []
    for mode in torch.tpu.ExecutionMode:
        with torch.tpu.execution_mode(mode):
            torch.manual_seed(9)
            results.append((draw().cpu(), draw().cpu()))
    for other in results[1:]:
        assert torch.equal(other[0], results[0][0]) and torch.equal(other[1], results[0][1])


def test_numbers_are_the_same_in_another_process():
    code = """
import torch, torch_tpu
torch.set_num_threads(THREADS)
torch.manual_seed(3)
print(torch.randn(1000, device="tpu").double().sum().item(), torch.randint(10**9, (3,), device="tpu").tolist())
"""
    outputs = {in_fresh_python(code.replace("THREADS", str(threads))).stdout for threads in (1, 2)}
    assert len(outputs) == 1


def test_generator():
    g = torch.Generator(device="tpu").manual_seed(7)
    assert g.device == torch.device("tpu:0") and g.initial_seed() == 7
    first = torch.randn(10, generator=g, device="tpu")
    default = torch.tpu.get_rng_state()
    second = torch.randn(10, generator=g, device="tpu")
    assert torch.equal(torch.tpu.get_rng_state(), default)
    assert not torch.equal(first, second)
    g.manual_seed(7)
    assert torch.equal(torch.randn(10, generator=g, device="tpu"), first)
    copy = torch.Generator(device="tpu")
    copy.set_state(g.get_state())
    assert torch.equal(torch.randn(10, generator=copy, device="tpu"), second)


def test_generator_of_other_device_raises():
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(3, device="tpu", generator=torch.Generator())


def test_wrong_state_raises():
    for state in (torch.zeros(8, dtype=torch.uint8), torch.zeros(16), torch.zeros(5056, dtype=torch.uint8)):
        with pytest.raises((RuntimeError, TypeError)):
            torch.tpu.set_rng_state(state)


def test_fork_rng():
    torch.manual_seed(11)
    expected = torch.randn(5, device="tpu")
    torch.manual_seed(11)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.manual_seed(99)
        torch.randn(20, device="tpu")
    assert torch.equal(torch.randn(5, device="tpu"), expected)


def test_default_generators():
    assert len(torch.tpu.default_generators) == torch.tpu.device_count()
    torch.tpu.manual_seed(21)
    assert torch.tpu.initial_seed() == 21 == torch.tpu.default_generators[0].initial_seed()
    seed = torch.tpu.seed()
    assert torch.tpu.initial_seed() == seed
    torch.tpu.manual_seed_all(22)
    states = torch.tpu.get_rng_state_all()
    first = torch.rand(4, device="tpu")
    torch.tpu.set_rng_state_all(states)
    assert torch.equal(torch.rand(4, device="tpu"), first)


def test_seeding_before_first_use():
    """torch.manual_seed before the device started holds, whatever starts it."""
    code = """
import torch, torch_tpu
torch.manual_seed(4)
started = torch.tpu.is_initialized()
first = torch.rand(4, device="tpu").tolist()
torch.manual_seed(4)
assert torch.rand(4, device="tpu").tolist() == first
print(started)
"""
    assert in_fresh_python(code).stdout.split() == ["False"]


def test_tensor_methods_and_generators():
    """A generator given to a method is drawn from, and the default one is left alone."""
    for fill in (torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.exponential_, torch.Tensor.cauchy_):
        g = torch.Generator(device="tpu").manual_seed(3)
        default = torch.tpu.get_rng_state()
        first = fill(torch.empty(50, device="tpu"), generator=g)
        assert torch.equal(torch.tpu.get_rng_state(), default)
        assert torch.equal(fill(torch.empty(50, device="tpu"), generator=g.manual_seed(3)), first)


# ---- distributions ---------------------------------------------------------------------------------------------------

COUNT = 100_000


def empty(dtype=torch.float32):
    return torch.empty(COUNT, device="tpu", dtype=dtype)


def gamma(shape: float):
    return torch._standard_gamma(torch.full((COUNT,), float(shape), device="tpu"))


CONTINUOUS = {  # what draws COUNT numbers, and the distribution that they are from
    "rand": (lambda: torch.rand(COUNT, device="tpu"), stats.uniform()),
    "rand float64": (lambda: torch.rand(COUNT, device="tpu", dtype=torch.float64), stats.uniform()),
    "uniform_": (lambda: empty().uniform_(-3, 5), stats.uniform(-3, 8)),
    "randn": (lambda: torch.randn(COUNT, device="tpu"), stats.norm()),
    "randn float64": (lambda: torch.randn(COUNT, device="tpu", dtype=torch.float64), stats.norm()),
    "randn complex": (lambda: torch.randn(COUNT, device="tpu", dtype=torch.complex64).real, stats.norm(0, 0.5**0.5)),
    "normal_": (lambda: empty().normal_(2, 3), stats.norm(2, 3)),
    "normal of tensors": (lambda: torch.normal(empty().fill_(-1), empty().fill_(0.25)), stats.norm(-1, 0.25)),
    "log_normal_": (lambda: empty().log_normal_(0.5, 0.75), stats.lognorm(0.75, scale=np.exp(0.5))),
    "exponential_": (lambda: empty().exponential_(1.5), stats.expon(scale=1 / 1.5)),
    "cauchy_": (lambda: empty().cauchy_(1, 2), stats.cauchy(1, 2)),
    "gamma 0.3": (lambda: gamma(0.3), stats.gamma(0.3)),
    "gamma 4": (lambda: gamma(4), stats.gamma(4)),
    "dirichlet": (
        lambda: torch._sample_dirichlet(torch.tensor([1.0, 2.0, 4.0], device="tpu").expand(COUNT, 3))[:, 1],
        stats.beta(2, 5),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distribution(name):
    """Kolmogorov and Smirnov's test, and successive numbers that do not hang together."""
    draw, distribution = CONTINUOUS[name]
    torch.manual_seed(17)
    numbers = draw().cpu().double().numpy()
    assert stats.kstest(numbers, distribution.cdf).pvalue > 1e-4
    ranks = distribution.cdf(numbers)
    assert abs(np.corrcoef(ranks[:-1], ranks[1:])[0, 1]) < 4 / COUNT**0.5
    assert abs(ranks.mean() - 0.5) < 4 * (1 / 12 / COUNT) ** 0.5
    assert abs(ranks.var() - 1 / 12) < 4 * (1 / 180 / COUNT) ** 0.5


DISCRETE = {
    "randint": (lambda: torch.randint(-3, 7, (COUNT,), device="tpu"), stats.randint(-3, 7)),
    "random_": (lambda: empty(torch.int32).random_(5, 12), stats.randint(5, 12)),
    "bernoulli": (lambda: torch.bernoulli(empty().fill_(0.2)), stats.bernoulli(0.2)),
    "bernoulli_": (lambda: empty().bernoulli_(0.7), stats.bernoulli(0.7)),
    "bernoulli_ of a tensor": (lambda: empty().bernoulli_(empty().fill_(0.4)), stats.bernoulli(0.4)),
    "geometric_": (lambda: empty().geometric_(0.3), stats.geom(0.3)),
    "poisson 2": (lambda: torch.poisson(empty().fill_(2)), stats.poisson(2)),
    "poisson 40": (lambda: torch.poisson(empty().fill_(40)), stats.poisson(40)),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([1.0, 0.0, 2.0, 5.0], device="tpu"), COUNT, replacement=True),
        stats.rv_discrete(values=([0, 2, 3], [0.125, 0.25, 0.625])),
    ),
    "dropout": (lambda: torch.nn.functional.dropout(empty().fill_(3), 0.25) / 4, stats.bernoulli(0.75)),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distribution(name):
    """A chi-squared test over the values that are not rare."""
    draw, distribution = DISCRETE[name]
    torch.manual_seed(19)
    values, counts = np.unique(draw().cpu().double().numpy(), return_counts=True)
    expected = distribution.pmf(values) * COUNT
    assert (expected > 0).all(), f"values that cannot be: {values[expected == 0]}"
    common = expected > 20
    observed = [*counts[common], COUNT - counts[common].sum()]
    wanted = [*expected[common], COUNT - expected[common].sum()]
    if wanted[-1] < 1e-6:
        observed, wanted = observed[:-1], wanted[:-1]
    wanted = np.array(wanted) * (COUNT / np.sum(wanted))
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


def test_multinomial_without_replacement():
    """No number twice, none of weight 0, and the first one by its weight."""
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0, 4.0], device="tpu").expand(20_000, 5)
    drawn = torch.multinomial(weights, 4).cpu()
    assert (drawn.sort(1).values == torch.tensor([0, 1, 3, 4])).all()
    first = torch.bincount(drawn[:, 0], minlength=5).double().numpy()[[0, 1, 3, 4]]
    assert stats.chisquare(first, np.array([0.1, 0.2, 0.3, 0.4]) * 20_000).pvalue > 1e-4


def test_randperm_is_uniform():
    """All orders of three, equally often."""
    orders = torch.stack([torch.randperm(3, device="tpu") for _ in range(600)]).cpu()
    counts = torch.bincount(orders[:, 0] * 9 + orders[:, 1] * 3 + orders[:, 2]).double().numpy()
    assert (counts > 0).sum() == 6
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-4
    assert sorted(torch.randperm(1000, device="tpu").tolist()) == list(range(1000))


def test_rand_never_gives_one():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        numbers = torch.rand(300_000, device="tpu", dtype=dtype)
        assert 0 <= numbers.min().item() and numbers.max().item() < 1


def test_dropout_gradient_uses_the_same_mask():
    x = torch.ones(1000, device="tpu", requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.5)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_checkpoint_preserves_dropout():
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1)).to("tpu")
    x = torch.randn(8, 16, device="tpu")
    gradients = []
    for use in (False, True):
        torch.manual_seed(2)
        layer.zero_grad()
        out = checkpoint(layer, x, use_reentrant=False) if use else layer(x)
        out.sum().backward()
        gradients.append(layer[0].weight.grad.clone())
    torch.testing.assert_close(*gradients)


def test_random_warns_where_a_float_skips_integers():
    x = torch.empty(2, dtype=torch.float16, device="tpu")
    with pytest.warns(UserWarning, match="from is out of bounds.*; to - 1 is out of bounds"):
        x.random_(-5000, 5000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.random_(-2048, 2049)
