"""PEFT 0.21: the device that adapters are loaded to where the caller names none comes from a list without tpu."""

from types import ModuleType

from torch_tpu.integrations._common import put_before, tpu_for_cpu


def apply(peft: ModuleType) -> None:
    """Teach an imported PEFT about tpu."""
    put_before({peft.utils.other.infer_device: tpu_for_cpu})
