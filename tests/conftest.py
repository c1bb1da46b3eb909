"""The fixtures of all Python tests, and what the tests over PyTorch's databases print at the end."""

import collections

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


def pytest_terminal_summary(terminalreporter):
    """The comparisons and the number of exceptions that the tests in ops/ recorded as their properties."""
    reports = [r for rs in terminalreporter.stats.values() for r in rs if getattr(r, "when", None) == "call"]
    recorded = [p for report in reports for p in report.user_properties]
    outcomes = collections.Counter(tuple(value) for name, value in recorded if name == "compared")
    for (_, outcome), number in list(outcomes.items()):
        outcomes["all", outcome] += number
    if outcomes:
        terminalreporter.write_line(f"{'compared with the CPU':22} {'agree':>7} {'differ':>7} {'no sample':>10}")
    for aspect in sorted({aspect for aspect, _ in outcomes}, key=lambda aspect: (aspect == "all", aspect)):
        differ = outcomes[aspect, "wrong"] + outcomes[aspect, "missing"]
        terminalreporter.write_line(f"{aspect:22} {outcomes[aspect, 'ok']:7} {differ:7} {outcomes[aspect, 'none']:10}")
    for count in [value for name, value in recorded if name == "exceptions"]:
        terminalreporter.write_line(f"{count} exceptions (tests/ops/exceptions.py)")
