"""The fixtures of all Python tests."""

import pytest

import torch
import torch_tpu  # noqa: F401 - where autoloading is switched off


@pytest.fixture(autouse=True)
def clean_device():
    """Every test starts from the same seed and leaves the device in its default mode and without a pending error."""
    torch.manual_seed(0)
    torch.tpu.reset_counters()
    yield
    torch.tpu.allow_fallback(False)
    torch.tpu.set_execution_mode(torch.tpu.ExecutionMode.FUSED)
    torch.tpu.set_device(0)
    torch.tpu.synchronize()


@pytest.fixture
def no_fallback(clean_device):
    """Fails a test during which an operator ran on the CPU."""
    yield
    assert torch.tpu.counters()["fallbacks"] == {}
