"""sentence-transformers 6.2: the device of a model where the caller names none comes from a list without tpu."""

from types import ModuleType

from torch_tpu.integrations._common import put_before, tpu_for_cpu


def apply(sentence_transformers: ModuleType) -> None:
    """Teach an imported sentence-transformers about tpu."""
    put_before({sentence_transformers.util.get_device_name: tpu_for_cpu})
