"""Device memory: what tensors hold, and what the chip holds.

*allocated* counts live tensors' storages; *reserved* is the chip's own count, with temporaries and recycled blocks.
All figures are bytes.
"""

import collections

import torch
from torch_tpu import _C

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
]


def _index(device) -> int:
    from torch_tpu.tpu import _index

    return _index(device)


def memory_stats(device=None) -> collections.OrderedDict:
    """All statistics of a device, under PyTorch's names, and the chip's own under ``device.*``."""
    index = _index(device)
    stats = collections.OrderedDict(torch.accelerator.memory_stats(index))
    for name, value in _C.memory_stats(index).items():
        stats[f"device.{name}"] = value
    return stats


def memory_allocated(device=None) -> int:
    """Bytes that live tensors hold."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device=None) -> int:
    """The most that live tensors held since the last reset."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device=None) -> int:
    """Bytes of the chip's memory in use or kept for reuse."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device=None) -> int:
    """The most of the chip's memory that was in use since the last reset, temporaries included."""
    return _C.memory_stats(_index(device))["peak_bytes_in_use"]


def reset_peak_memory_stats(device=None) -> None:
    """Start the peaks again from what is held now."""
    _C.initialize()
    _C.reset_peak_memory_stats(_index(device))


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device=None) -> None:
    """Set the running totals to zero."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the system."""
    if _C.is_initialized():
        torch.accelerator.memory.empty_cache()


def mem_get_info(device=None) -> tuple[int, int]:
    """Free and total bytes of a device."""
    stats = _C.memory_stats(_index(device))
    if stats["bytes_limit"] <= 0:
        raise RuntimeError("mem_get_info: the plugin does not tell how much memory the device has")
    return stats["bytes_limit"] - stats["bytes_in_use"], stats["bytes_limit"]


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """A table of the statistics, for people."""
    stats = memory_stats(device)
    rows = [(name, value) for name, value in stats.items() if not abbreviated or name.endswith((".current", ".peak"))]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:>16,}" for name, value in rows)
