"""Random numbers: the state, seeds, generators, and that every draw is new."""

import pytest
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


def test_distributions():
    n = 200_000
    normal = torch.randn(n, device="tpu")
    assert abs(normal.mean().item()) < 0.01 and abs(normal.std().item() - 1) < 0.01
    assert abs((normal > 1.959964).float().mean().item() - 0.025) < 0.002
    uniform = torch.rand(n, device="tpu")
    assert 0 <= uniform.min().item() and uniform.max().item() < 1
    assert abs(uniform.mean().item() - 0.5) < 0.005 and abs(uniform.var().item() - 1 / 12) < 0.002
    counts = torch.bincount(torch.randint(0, 10, (n,), device="tpu").cpu(), minlength=10)
    assert (counts - n / 10).abs().max() < 800
    assert sorted(torch.randperm(1000, device="tpu").tolist()) == list(range(1000))
    kept = torch.nn.functional.dropout(torch.ones(n, device="tpu"), 0.25)
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((kept > 0).float().mean().item() - 0.75) < 0.005


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
