"""Memory: statistics, the limit, and that nothing is kept."""

import gc

from support import assert_values, in_fresh_python

import torch

MEGABYTE = 1 << 20


def test_allocated_follows_tensors():
    gc.collect()
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    x = torch.zeros(MEGABYTE, dtype=torch.uint8, device="tpu")
    assert torch.tpu.memory_allocated() - before == MEGABYTE
    y = x[10:].view(-1)
    assert torch.tpu.memory_allocated() - before == MEGABYTE
    del x
    assert torch.tpu.memory_allocated() - before == MEGABYTE
    del y
    assert torch.tpu.memory_allocated() == before


def test_peak():
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_allocated()
    x = torch.zeros(4 * MEGABYTE, dtype=torch.uint8, device="tpu")
    del x
    assert torch.tpu.max_memory_allocated() - before >= 4 * MEGABYTE
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() == torch.tpu.memory_allocated()


def test_chip_memory_follows_values():
    torch.tpu.synchronize()
    torch.tpu.empty_cache()
    before = torch.tpu.memory_stats()["device.bytes_in_use"]
    x = torch.ones(8 * MEGABYTE, dtype=torch.uint8, device="tpu") + 1
    torch.tpu.synchronize()
    assert torch.tpu.memory_stats()["device.bytes_in_use"] - before >= 8 * MEGABYTE
    assert torch.tpu.max_memory_reserved() >= 8 * MEGABYTE
    del x
    torch.tpu.synchronize()
    torch.tpu.empty_cache()
    assert torch.tpu.memory_stats()["device.bytes_in_use"] - before < MEGABYTE


def test_intermediate_results_need_no_memory():
    """A chain of elementwise operators keeps its last value alone."""
    x = torch.ones(4 * MEGABYTE, device="tpu")
    torch.tpu.synchronize()
    torch.tpu.empty_cache()
    torch.tpu.reset_peak_memory_stats()
    start = torch.tpu.max_memory_reserved()
    y = x
    for _ in range(6):
        y = y * 1.0001 + 1
    torch.tpu.synchronize()
    assert torch.tpu.max_memory_reserved() - start < 3 * 16 * MEGABYTE


def test_statistics_under_every_name():
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated() == torch.accelerator.memory_allocated()
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total == torch.tpu.get_device_properties().total_memory
    assert torch.accelerator.get_memory_info() == (free, total)
    assert "allocated_bytes.all.current" in torch.tpu.memory_summary()


def test_out_of_memory_at_allocation():
    """More than the chip has is refused at once, the process goes on, and what is freed can be had again."""
    code = """
import torch, torch_tpu
limit = torch.tpu.get_device_properties().total_memory
assert limit == 64 << 20, limit
kept = torch.ones(8 << 20, dtype=torch.uint8, device="tpu")
for attempt in range(3):
    try:
        torch.empty(100 << 20, dtype=torch.uint8, device="tpu")
    except torch.OutOfMemoryError as error:
        assert "MiB" in str(error) or "bytes" in str(error), error
        print("refused")
assert kept.sum().item() == 8 << 20
most = torch.ones(40 << 20, dtype=torch.uint8, device="tpu")
assert most[-1].item() == 1
del most
again = torch.full((40 << 20,), 2, dtype=torch.uint8, device="tpu")
assert again[-1].item() == 2
assert torch.tpu.memory_stats()["num_ooms"] >= 3
print("went on")
"""
    out = in_fresh_python(code, TTPU_HBM_BYTES=str(64 * MEGABYTE))
    assert out.stdout.split() == ["refused"] * 3 + ["went", "on"]


def test_out_of_memory_of_many_small_tensors():
    code = """
import torch, torch_tpu
held = []
try:
    while True:
        held.append(torch.ones(1 << 20, dtype=torch.uint8, device="tpu"))
        torch.tpu.synchronize()
except torch.OutOfMemoryError:
    print(len(held))
held.clear()
print(torch.ones(4, device="tpu").sum().item())
"""
    count, total = in_fresh_python(code, TTPU_HBM_BYTES=str(32 * MEGABYTE)).stdout.split()
    assert 24 <= int(count) <= 32
    assert total == "4.0"


def test_out_of_memory_of_temporaries():
    """What only the program's temporaries exceed is raised by a read or a synchronisation, and named."""
    code = """
import torch, torch_tpu
x = torch.ones(3 << 20, device="tpu")  # 12 MiB
try:
    y = x.sort().values.flip(0).cumsum(0) + x.argsort().float().sort().values
    z = torch.cat([y, x, y, x])
    z.sum().item()
    print("fitted")
except torch.OutOfMemoryError as error:
    print("refused")
print(x.sum().item())
"""
    first, total = in_fresh_python(code, TTPU_HBM_BYTES=str(40 * MEGABYTE)).stdout.split()
    assert first == "refused"
    assert float(total) == 3 << 20


def test_resident_memory_of_freed_tensors_is_reused():
    """Forty steps that each free 8 MiB keep far less than the 320 MiB; other tests' memory would blur that."""
    code = """
import torch
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
sizes = []
for step in range(60):
    x = torch.ones(4 << 20, dtype=torch.uint8, device="tpu") + 1
    x.cpu()
    if step % 20 == 19:
        sizes.append(resident())
print(sizes[-1] - sizes[0])
"""
    assert int(in_fresh_python(code).stdout) < 32 * MEGABYTE


def test_data_pointers_are_identities():
    x, y = torch.zeros(4, device="tpu"), torch.zeros(4, device="tpu")
    assert x.data_ptr() != y.data_ptr() != 0
    assert x[1:].data_ptr() == x.data_ptr() + 4
    assert x.untyped_storage().nbytes() == 16
    before = x.data_ptr()
    x.add_(1)
    assert x.data_ptr() == before
    assert torch.zeros(0, device="tpu").data_ptr() == 0
    assert_values(x, [1] * 4)
