"""What libraries lack that choose their devices from a fixed list: their branch for tpu.

A module here is named after its library, is imported when the library is and never otherwise, and puts functions
before some of the library's. Each of these hands on what it was given, unchanged, where PyTorch's accelerator is not
tpu or the caller names another device: who uses another device sees no difference. docs/libraries.md lists what was
run.
"""

import functools
import importlib
from types import ModuleType

from torch_tpu._imports import when_imported

# The module whose import calls for an integration: the integration's module, and its function that takes the first.
INTEGRATIONS = {
    "safetensors": ("safetensors", "apply"),
    "accelerate": ("accelerate", "apply"),
    "accelerate.commands.launch": ("accelerate", "apply_to_launcher"),
    "accelerate.test_utils.testing": ("accelerate", "apply_to_testing"),
    "transformers.trainer": ("transformers", "apply_to_trainer"),
    "transformers.pipelines.base": ("transformers", "apply_to_pipelines"),
    "peft": ("peft", "apply"),
    "sentence_transformers": ("sentence_transformers", "apply"),
    "lightning.fabric": ("lightning", "apply_to_fabric"),
    "lightning.pytorch": ("lightning", "apply_to_trainer"),
    "lightning_fabric": ("lightning", "apply_to_fabric"),
    "pytorch_lightning": ("lightning", "apply_to_trainer"),
}


def _apply(integration: str, function: str, library: ModuleType) -> None:
    getattr(importlib.import_module(f"{__name__}.{integration}"), function)(library)


def install() -> None:
    """Have each integration applied when its library is imported; at once where it is already."""
    for library, (integration, function) in INTEGRATIONS.items():
        when_imported(library, functools.partial(_apply, integration, function))
