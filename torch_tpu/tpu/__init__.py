"""``torch.tpu``: devices, streams, memory, random state and the runtime's own controls.

It has what users of ``torch.cuda`` and ``torch.accelerator`` expect, under the same names.
"""

import contextlib
import enum
import importlib
import types

import torch
from torch_tpu import _C
from torch_tpu import aot as aot
from torch_tpu.tpu import amp as amp
from torch_tpu.tpu.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from torch_tpu.tpu.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_tpu.tpu.streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream

__all__ = [
    "Event",
    "ExecutionMode",
    "Precision",
    "Stream",
    "StreamContext",
    "allow_fallback",
    "aot",
    "counters",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "errors_on_compile",
    "execution_mode",
    "flush",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "precision",
    "reset_accumulated_memory_stats",
    "reset_counters",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_execution_mode",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


# ---- devices


def init() -> None:
    """Start the device's plugin now instead of at the first use."""
    _C.initialize()


_lazy_init = init


def is_initialized() -> bool:
    """Whether the plugin was started in this process."""
    return _C.is_initialized()


def __getattr__(name: str):
    # torch.utils.checkpoint asks for this name to decide whether there is random state to keep.
    if name == "_initialized":
        return _C.is_initialized()
    if name == "export":  # it imports torch.export, which takes time that others need not spend
        return importlib.import_module("torch_tpu.export")
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")


def is_available() -> bool:
    """Whether a device can be used: always, unless the settings are wrong or this is a forked child.

    Nothing is started to find out, so that child processes can still be forked.
    """
    return _C.is_available()


def device_count() -> int:
    """How many devices this process sees (``TTPU_TOPOLOGY`` decides for the software TPU).

    The software TPU need not be started for the answer; other plugins are.
    """
    return _C.device_count()


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def _index(device: "torch.device | str | int | None", optional: bool = True) -> int:
    """The index that names a device; None and a bare "tpu" mean the current one."""
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "tpu":
            raise ValueError(f"expected a tpu device, got {device}")
        device = device.index
    if device is None:
        return _C.current_device()
    return int(device)


def current_device() -> int:
    """The index of the current device."""
    return _C.current_device()


def set_device(device: "torch.device | str | int") -> None:
    """Make a device current; a negative index changes nothing."""
    index = _index(device)
    if index >= 0:
        _C.set_device(index)


def _exchange_device(index: int) -> int:
    previous = _C.current_device()
    if index >= 0:
        _C.set_device(index)
    return previous


_maybe_exchange_device = _exchange_device


class device:
    """Context manager that makes a device current; a negative index or None changes nothing."""

    def __init__(self, device: "torch.device | str | int | None") -> None:
        self.idx = -1 if device is None else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *_exception) -> bool:
        _exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager that makes the device of a tensor current; nothing for tensors elsewhere."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.device.index if obj.device.type == "tpu" else None)


def synchronize(device: "torch.device | str | int | None" = None) -> None:
    """Wait for all work of a device; raises the first error since the last synchronisation."""
    _C.initialize()
    _C.synchronize(_index(device))


def flush(device: "torch.device | str | int | None" = None) -> None:
    """Send what is recorded on its way, without waiting."""
    if is_initialized():
        _C.flush(_index(device))


def get_device_properties(device: "torch.device | str | int | None" = None) -> types.SimpleNamespace:
    """Name, total_memory (bytes), coords, core_on_chip, id, process_index, multi_processor_count (cores: 1)."""
    return types.SimpleNamespace(multi_processor_count=1, **_C.device_properties(_index(device)))


def get_device_name(device: "torch.device | str | int | None" = None) -> str:
    """The kind of chip, as PJRT names it: ``"TPU v5 lite"``."""
    return get_device_properties(device).name


def get_device_capability(device: "torch.device | str | int | None" = None) -> dict:
    """What ``torch.accelerator.get_device_capability`` reports: the dtypes that the device computes with."""
    return torch.accelerator.get_device_capability(torch.device("tpu", _index(device)))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is a TPU's own number format."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("tpu")`` takes."""
    return [torch.bfloat16, torch.float16]


# ---- precision of float32 products


class Precision(enum.Enum):
    """How exact a float32 product is: DEFAULT one bfloat16 pass, HIGH three, HIGHEST exact float32."""

    DEFAULT = "medium"
    HIGH = "high"
    HIGHEST = "highest"


@contextlib.contextmanager
def precision(mode: "Precision | str"):
    """Within the block, float32 products have this precision (``torch.set_float32_matmul_precision``)."""
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(Precision(mode).value if not isinstance(mode, Precision) else mode.value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous)


# ---- the runtime


class ExecutionMode(enum.IntEnum):
    """FUSED records and runs pieces of many operators; EAGER runs each at once; BLOCKING also waits for it."""

    FUSED = 0
    EAGER = 1
    BLOCKING = 2


def set_execution_mode(mode: ExecutionMode) -> None:
    """Choose how operators run from now on (``TTPU_MODE=fused|eager|blocking`` at the start)."""
    _C.initialize()
    _C.set_mode(int(mode))


@contextlib.contextmanager
def execution_mode(mode: ExecutionMode):
    """Within the block, operators run in this mode."""
    _C.initialize()
    previous = _C.get_mode()
    _C.set_mode(int(mode))
    try:
        yield
    finally:
        _C.set_mode(previous)


def counters() -> dict:
    """What the runtime did since the start or the last reset.

    ops_recorded, op_cache_hits (results' metadata known), programs_run, program_cache_hits, programs_built (a piece not
    met before), programs_compiled (of these, how many needed new code; the rest only bound new sizes), programs_loaded
    (from the disk instead), programs_bucketed (of those built, served by a program of padded sizes, `TTPU_BUCKETS`),
    compile_seconds (that building and compiling took), host_reads, uploads, and two dicts of
    operator to count: fallbacks, and host, the factorisations (LU, QR, SVD, eigenvalues) that always run on the CPU.
    """
    return _C.counters()


def reset_counters() -> None:
    """Set all counters to zero."""
    _C.reset_counters()


@contextlib.contextmanager
def errors_on_compile():
    """Within the block, compiling a program is an error that names it: a guard for loops that should be warm."""
    _C.initialize()
    _C.forbid_compile(1)
    try:
        yield
        for index in range(device_count()):
            _C.synchronize(index)
    finally:
        _C.forbid_compile(-1)


def allow_fallback(allow: bool = True) -> None:
    """Let operators that the device lacks run on the CPU, counted in ``counters()["fallbacks"]``; else they raise."""
    _C.allow_fallback(allow)
