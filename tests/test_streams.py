"""Streams, events, and what has run when."""

import threading
import time

import pytest
from support import assert_values

import torch


def work(size: int = 256, times: int = 8) -> torch.Tensor:
    x = torch.full((size, size), 1.0 / size, device="tpu")
    y = torch.ones(size, size, device="tpu")
    for _ in range(times):
        y = x @ y
    return y


def test_current_stream():
    stream = torch.tpu.Stream()
    before = torch.tpu.current_stream()
    assert before == torch.tpu.default_stream()
    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() == stream
        assert torch.accelerator.current_stream() == stream
        y = work()
    assert torch.tpu.current_stream() == before
    before.wait_stream(stream)
    stream.synchronize()
    assert stream.query()
    assert_values(y[0, :4], [1.0] * 4, rtol=1e-5, atol=0)


def test_stream_as_context_of_torch():
    stream = torch.Stream(device="tpu")
    with stream:
        assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream() != stream


def test_set_stream():
    stream = torch.tpu.Stream(priority=-1)
    torch.tpu.set_stream(stream)
    try:
        assert torch.tpu.current_stream() == stream
    finally:
        torch.tpu.set_stream(torch.tpu.default_stream())


def test_streams_are_per_thread():
    stream, seen = torch.tpu.Stream(), []
    with torch.tpu.stream(stream):
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.tpu.default_stream()]


def test_event_elapsed_time():
    work().sum().item()
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    began = time.perf_counter()
    start.record()
    work(384, 16)
    end.record()
    end.synchronize()
    wall = (time.perf_counter() - began) * 1e3
    assert end.query()
    assert 0 < start.elapsed_time(end) <= wall + 1


def test_event_orders_by_record():
    first, second, third = (torch.tpu.Event(enable_timing=True) for _ in range(3))
    first.record()
    work()
    second.record()
    work()
    third.record()
    torch.tpu.synchronize()
    assert 0 < first.elapsed_time(second) < first.elapsed_time(third)


def test_event_of_device_agnostic_code():
    event = torch.Event("tpu", enable_timing=True)
    event.record()
    stream = torch.tpu.Stream()
    stream.wait_event(event)
    other = stream.record_event()
    event.wait(stream)
    other.synchronize()
    event.synchronize()
    assert event.query() and other.query()


def test_elapsed_time_of_unrecorded_event_raises():
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    start.record()
    with pytest.raises((RuntimeError, ValueError)):
        start.elapsed_time(end)


def test_synchronize_waits_for_everything():
    y = work(384, 16)
    torch.tpu.synchronize()
    began = time.perf_counter()
    y.cpu()
    copied = time.perf_counter() - began
    began = time.perf_counter()
    work(384, 16).cpu()
    computed = time.perf_counter() - began
    assert copied < computed


def test_recording_from_many_threads():
    results = [None] * 4

    def run(i):
        x = torch.full((64,), float(i), device="tpu")
        for _ in range(200):
            x = x + 1
            x.mul_(1)
        results[i] = x

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, result in enumerate(results):
        assert_values(result, [200.0 + i] * 64)


def test_record_stream_keeps_values():
    x = torch.arange(8.0, device="tpu")
    y = x * 2
    x.record_stream(torch.tpu.Stream())
    del x
    assert_values(y, [2.0 * i for i in range(8)])


def test_synchronize_by_name():
    for device in (None, 0, "tpu", "tpu:0", torch.device("tpu", 0)):
        torch.tpu.synchronize(device)
    torch.accelerator.synchronize()
