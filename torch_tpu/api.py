"""The names that programs written for Google's torch_tpu look for."""

import torch
from torch_tpu._loader import load

__all__ = ["load", "tpu_device"]


def tpu_device(index: int | None = None) -> torch.device:
    """Return the device ``tpu`` (or ``tpu:index``).

    Parameters
    ----------
    index
        Which chip; None means the current one.
    """
    load()
    return torch.device("tpu") if index is None else torch.device("tpu", index)
