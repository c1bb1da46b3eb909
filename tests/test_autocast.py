"""Automatic mixed precision and gradient scaling."""

import pytest
from support import assert_same
from torch.nn import functional

import torch
from torch import nn


@pytest.mark.parametrize("context", [lambda: torch.autocast("tpu"), torch.tpu.amp.autocast], ids=["torch", "torch.tpu"])
def test_default_is_bfloat16(context):
    x = torch.randn(3, 4, device="tpu")
    with context():
        assert torch.is_autocast_enabled("tpu")
        assert (x @ x.t()).dtype == torch.bfloat16
    assert (x @ x.t()).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_policies(dtype):
    x, w = torch.randn(3, 4, device="tpu"), torch.randn(4, 4, device="tpu")
    with torch.autocast("tpu", dtype=dtype):
        assert functional.linear(x, w).dtype == dtype
        assert functional.conv1d(x[None], w[:, :3, None]).dtype == dtype
        assert functional.scaled_dot_product_attention(x[None], x[None], x[None]).dtype == dtype
        assert x.exp().dtype == torch.float32
        assert (x.to(dtype)).softmax(0).dtype == torch.float32
        assert functional.layer_norm(x.to(dtype), (4,)).dtype == torch.float32
        assert torch.cat([x, x.to(dtype)]).dtype == torch.float32
        assert functional.mse_loss(x.to(dtype), x.to(dtype)).dtype == torch.float32
        with torch.autocast("tpu", enabled=False):
            assert (x @ w).dtype == torch.float32
        with pytest.raises(RuntimeError, match="autocast"):
            functional.binary_cross_entropy(x.sigmoid(), x.sigmoid())


def test_autocast_of_other_devices_changes_nothing():
    x = torch.randn(3, 3, device="tpu")
    with torch.autocast("cpu"):
        assert (x @ x).dtype == torch.float32


def test_values_are_those_of_explicit_casts():
    x, w = torch.randn(5, 8, device="tpu"), torch.randn(6, 8, device="tpu")
    with torch.autocast("tpu"):
        out = functional.linear(x, w)
    assert torch.equal(out, functional.linear(x.bfloat16(), w.bfloat16()))
    assert_same(out, functional.linear(x.cpu().bfloat16(), w.cpu().bfloat16()), rtol=2e-2, atol=2e-2)


def train(device: str, dtype: torch.dtype, scaled: bool) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    x, y = torch.randn(64, 8), torch.randn(64, 1)
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(device, enabled=scaled, init_scale=1024.0)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            loss = functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
    return losses


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_training(dtype, no_fallback):
    losses = train("tpu", dtype, scaled=dtype == torch.float16)
    expected = train("cpu", dtype, scaled=dtype == torch.float16)
    assert losses[-1] < 0.9 * losses[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=3e-2, atol=1e-2)


def test_scaler_skips_infinite_gradients(no_fallback):
    parameter = nn.Parameter(torch.ones(3, device="tpu"))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.tpu.amp.GradScaler(init_scale=8.0)
    for factor, expected, scale in ((float("inf"), 1.0, 4.0), (1.0, 0.0, 4.0), (float("nan"), 0.0, 2.0)):
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == [expected] * 3 and scaler.get_scale() == scale
