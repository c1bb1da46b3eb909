"""PEFT 0.21: the device that adapters are loaded to where the caller names none comes from a list without tpu."""

from types import ModuleType

from torch_tpu.integrations._common import is_tpu_available, put_before


def _infer_device(infer):
    def infer_device() -> str:
        device = infer()
        return "tpu" if device == "cpu" and is_tpu_available() else device

    return infer_device


def apply(peft: ModuleType) -> None:
    """Teach an imported PEFT about tpu."""
    put_before({peft.utils.other.infer_device: _infer_device})
