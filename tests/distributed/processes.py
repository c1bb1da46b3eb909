"""Runs a function in several processes that are one process group, as torchrun would start them."""

import datetime
import os
import time
from collections.abc import Callable

import pytest
import torch.distributed as dist
import torch.multiprocessing
from support import free_port

import torch

LIMIT = 240  # seconds for all that the processes do


def _in_process(rank: int, size: int, port: int, seconds: float, function: Callable, arguments: tuple) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    device = torch.device("tpu", rank)
    torch.tpu.set_device(device)
    dist.init_process_group(device_id=device, timeout=datetime.timedelta(seconds=seconds))
    function(*arguments)
    dist.destroy_process_group()
    assert torch.tpu.counters()["fallbacks"] == {}


def run(size: int, function: Callable, *arguments, seconds: float = 100) -> None:
    """Call function(*arguments) in so many processes; what one of them raises fails the test.

    Parameters
    ----------
    seconds
        How long a collective waits for the others.
    """
    context = torch.multiprocessing.spawn(
        _in_process, (size, free_port(), seconds, function, arguments), nprocs=size, join=False
    )
    end = time.monotonic() + LIMIT
    while not context.join(timeout=5):
        if time.monotonic() > end:
            for process in context.processes:
                process.kill()
            pytest.fail(f"the processes did not end within {LIMIT} seconds")
