"""Fixtures of the libraries' tests: what the libraries keep between calls is forgotten after each test."""

import sys

import pytest

import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The models are tiny: on a busy machine threads that wait for each other would take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No network, no progress bars."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(autouse=True)
def fresh_accelerate(clean_device):
    """accelerate keeps one state a process."""
    yield
    if "accelerate" in sys.modules:
        from accelerate.state import AcceleratorState, GradientState

        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
