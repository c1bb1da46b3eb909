"""Hugging Face Transformers 5.24: pipelines choose tpu, and the Trainer's checkpoints hold its random state.

The Trainer itself knows tpu; a pipeline has a list of devices that ends with the CPU.
"""

import inspect
import os
from types import ModuleType

import torch
from torch_tpu.integrations._common import is_tpu_available, put_before_method, set_random_states


def _rng_file(trainer, folder: str) -> str:
    index = f"_{trainer.args.process_index}" if trainer.args.world_size > 1 else ""
    return os.path.join(folder, f"rng_state{index}.pth")


def _load(path: str) -> dict:
    from transformers.trainer_pt_utils import safe_globals

    with safe_globals():
        return torch.load(path, weights_only=True)


def _save_rng_state(save):
    def _save_rng_state(self, output_dir):
        save(self, output_dir)
        if self.args.device.type == "tpu":
            path = _rng_file(self, output_dir)
            torch.save({**_load(path), "tpu": torch.tpu.get_rng_state_all()}, path)

    return _save_rng_state


def _load_rng_state(restore):
    def _load_rng_state(self, checkpoint):
        restore(self, checkpoint)
        if checkpoint is None or self.args.device.type != "tpu":
            return
        path = _rng_file(self, checkpoint)
        if os.path.isfile(path):
            set_random_states(_load(path).get("tpu", []))  # a checkpoint of another device has none

    return _load_rng_state


def apply_to_trainer(trainer: ModuleType) -> None:
    """Teach an imported ``transformers.trainer`` to keep tpu's random state in checkpoints."""
    put_before_method(trainer.Trainer, "_save_rng_state", _save_rng_state)
    put_before_method(trainer.Trainer, "_load_rng_state", _load_rng_state)


def _choose_device(asked, model):
    """The device for a pipeline that was given none or a number; what else was asked for, unchanged."""
    placed = getattr(model, "hf_device_map", None)
    chosen = next(iter(placed.values())) if asked is None and placed else 0 if asked is None else asked
    if isinstance(chosen, int) and chosen >= 0:
        return torch.device("tpu", chosen)
    return asked


def _init_pipeline(init):
    signature = inspect.signature(init)

    def __init__(self, *args, **kwargs):
        if not is_tpu_available():
            return init(self, *args, **kwargs)
        call = signature.bind(self, *args, **kwargs)
        device = _choose_device(call.arguments.get("device"), call.arguments["model"])
        if getattr(call.arguments["model"], "hf_device_map", None) is None:
            call.arguments["device"] = device
            return init(*call.args, **call.kwargs)
        init(*call.args, **call.kwargs)  # which refuses a device beside the model's map
        if isinstance(device, torch.device):
            self.device = device

    return __init__


def apply_to_pipelines(base: ModuleType) -> None:
    """Teach an imported ``transformers.pipelines.base`` that devices by number, and the default one, are tpu's."""
    put_before_method(base.Pipeline, "__init__", _init_pipeline)
