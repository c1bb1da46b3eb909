"""Automatic mixed precision under its device-specific names."""

import torch

__all__ = ["GradScaler", "autocast"]


class autocast(torch.amp.autocast):
    """``torch.amp.autocast("tpu")``; bfloat16 unless told otherwise."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("tpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("tpu")``; needed for float16 only."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__("tpu", *args, **kwargs)
