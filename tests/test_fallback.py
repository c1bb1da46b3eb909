"""Operators that the device lacks: an error unless asked for; then they run on the CPU and are counted."""

import pytest
from support import assert_same, assert_values

import torch


@pytest.fixture
def lacking():
    """An operator with a CPU kernel alone."""
    library = torch.library.Library("ttpu_test", "FRAGMENT")
    library.define("twice_plus_one(Tensor x) -> Tensor")
    library.define("add_one_(Tensor(a!) x) -> Tensor(a!)")
    library.impl("twice_plus_one", lambda x: x * 2 + 1, "CPU")
    library.impl("add_one_", lambda x: x.add_(1), "CPU")
    yield torch.ops.ttpu_test
    library._destroy()


def test_error_by_default(lacking):
    x = torch.arange(3.0, device="tpu")
    with pytest.raises(NotImplementedError, match=r"ttpu_test::twice_plus_one.*allow_fallback"):
        lacking.twice_plus_one(x)
    assert torch.tpu.counters()["fallbacks"] == {}


def test_counted_when_allowed(lacking):
    x = torch.arange(6.0, device="tpu").view(2, 3)
    torch.tpu.allow_fallback(True)
    assert_values(lacking.twice_plus_one(x.t()), [[1, 7], [3, 9], [5, 11]])
    lacking.twice_plus_one(x)
    assert torch.tpu.counters()["fallbacks"] == {"ttpu_test::twice_plus_one": 2}
    torch.tpu.reset_counters()
    assert torch.tpu.counters()["fallbacks"] == {}
    torch.tpu.allow_fallback(False)
    with pytest.raises(NotImplementedError):
        lacking.twice_plus_one(x)


def test_in_place(lacking):
    x = torch.zeros(2, 3, device="tpu")
    torch.tpu.allow_fallback(True)
    lacking.add_one_(x[:, 1:])
    assert_values(x, [[0, 1, 1]] * 2)


def test_between_recorded_operators(lacking):
    torch.tpu.allow_fallback(True)
    x = torch.arange(4.0, device="tpu")
    y = x * 3
    z = lacking.twice_plus_one(y) - x
    assert_same(z, torch.arange(4.0) * 5 + 1)


def test_native_operators_count_nothing():
    x = torch.randn(8, 8, device="tpu")
    (torch.nn.functional.gelu(x) @ x).softmax(-1).sum().item()
    counters = torch.tpu.counters()
    assert counters["fallbacks"] == {}
    assert counters["ops_recorded"] >= 4 and counters["programs_run"] >= 1 and counters["host_reads"] == 1


def test_counters_reset():
    torch.ones(2, device="tpu").sum().item()
    assert torch.tpu.counters()["ops_recorded"] > 0
    torch.tpu.reset_counters()
    assert all(value in (0, {}) for value in torch.tpu.counters().values())


def test_factorisations_run_on_the_host_and_are_counted_apart():
    torch.tpu.reset_counters()
    a = torch.eye(3) + 0.1 * torch.ones(3, 3)
    x = a.to("tpu")
    assert torch.allclose(torch.linalg.inv(x).cpu(), torch.linalg.inv(a))
    assert torch.allclose(torch.linalg.solve(x, x[0]).cpu(), torch.linalg.solve(a, a[0]))
    assert torch.allclose(torch.linalg.det(x).cpu(), torch.linalg.det(a))
    assert torch.allclose(torch.linalg.eigvalsh(x).cpu(), torch.linalg.eigvalsh(a), atol=1e-6)
    assert torch.allclose(torch.linalg.svdvals(x).cpu(), torch.linalg.svdvals(a), atol=1e-6)
    q, r = torch.linalg.qr(x)
    assert q.device.type == "tpu" and torch.allclose((q @ r).cpu(), a, atol=1e-6)
    y = x.clone().requires_grad_()
    torch.linalg.slogdet(y)[1].backward()
    assert torch.allclose(y.grad.cpu(), torch.linalg.inv(a).T, atol=1e-6)
    counters = torch.tpu.counters()
    assert counters["fallbacks"] == {}
    assert counters["host"]["aten::linalg_inv_ex"] == 1
    torch.tpu.reset_counters()
    assert torch.tpu.counters()["host"] == {}
