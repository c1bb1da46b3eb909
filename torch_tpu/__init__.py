"""A native PyTorch backend for TPUs, with an embedded software TPU.

Importing torch is enough: PyTorch loads this package through its ``torch.backends`` entry point, after which
``device="tpu"`` works everywhere. ``import torch_tpu`` does the same where autoloading is switched off
(``TORCH_DEVICE_BACKEND_AUTOLOAD=0``). Nothing is started before the first use of the device.
"""

from torch_tpu._loader import __version__, load

__all__ = ["__version__", "load"]


def _autoload() -> None:
    """Entry point of the group ``torch.backends``: PyTorch calls it at the end of ``import torch``."""
    load()


load()
