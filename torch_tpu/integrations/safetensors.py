"""safetensors 0.8: its reader has a list of device names without tpu, and takes any accelerator by number."""

from types import ModuleType

import torch
from torch_tpu.integrations._common import put_before


def _number_if_tpu(device):
    """A device of tpu as its number, the current one's for a bare "tpu"; any other device as it is."""
    if not str(device).startswith("tpu"):
        return device
    index = torch.device(device).index
    return torch.tpu.current_device() if index is None else index


def _safe_open(reader: type) -> type:
    class OfReader(type):
        """What is made and what is recognised here are the reader's instances."""

        def __call__(cls, filename, framework, device="cpu", **options):
            return reader(filename, framework, _number_if_tpu(device), **options)

        def __instancecheck__(cls, instance) -> bool:
            return isinstance(instance, reader)

    class safe_open(metaclass=OfReader):  # the library's name for it
        __doc__ = reader.__doc__

    return safe_open


def apply(safetensors: ModuleType) -> None:
    """Teach an imported safetensors that "tpu" is a device."""
    put_before({safetensors.safe_open: _safe_open})
