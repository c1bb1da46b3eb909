"""Hugging Face accelerate 1.15: its branch for tpu.

accelerate asks one function a kind of device (``is_xpu_available``, ``is_mlu_available``, …) and ends with CUDA or the
CPU. What follows is the branch that it would have for tpu, a function each for the functions that have such branches.
"""

import os
from types import ModuleType

import torch
from torch_tpu import distributed
from torch_tpu.integrations._common import is_tpu_available, put_before, put_before_method, set_random_states

RNG_STATE_KEY = "torch_tpu_manual_seed"  # as torch_xpu_manual_seed and its like


def _default_device(choose):
    def default_device(self) -> torch.device:
        device = choose(self)
        return torch.device("tpu") if device.type == "cpu" and is_tpu_available() else device

    return default_device


def _wants_cpu_tensors_too() -> bool:
    """Will FSDP hand tensors on the CPU to collectives, as it does when it offloads or gathers whole states?"""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true" and (
        os.environ.get("FSDP_OFFLOAD_PARAMS", "false").lower() == "true"
        or os.environ.get("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT") == "FULL_STATE_DICT"
    )


def _prepare_backend(prepare):
    def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
        from accelerate.utils import DistributedType

        name, kind = prepare(self, cpu, sagemaker_dp, backend)
        launched = int(os.environ.get("LOCAL_RANK", -1)) != -1 and not cpu
        if kind != DistributedType.NO or not launched or (self.device or self.default_device).type != "tpu":
            return name, kind
        # MULTI_GPU is accelerate's name for one accelerator a process; only set_device takes it for CUDA's.
        if name is None and _wants_cpu_tensors_too():
            name = f"cpu:gloo,tpu:{distributed.NAME}"
        return name or distributed.NAME, DistributedType.MULTI_GPU

    return _prepare_backend


def _set_device(choose):
    def set_device(self):
        from accelerate.utils import DistributedType

        ours = self.device is None and self.distributed_type == DistributedType.MULTI_GPU
        if not ours or self.default_device.type != "tpu":
            return choose(self)
        self.device = torch.device("tpu", self.local_process_index % torch.tpu.device_count())
        torch.tpu.set_device(self.device)

    return set_device


def _bytes(size: int | float | str) -> int | float:
    from accelerate.utils import convert_file_size_to_int

    return convert_file_size_to_int(size) if isinstance(size, str) else size


def _free_memory(index: int) -> int:
    try:
        return torch.tpu.mem_get_info(index)[0]
    except RuntimeError as error:  # not every plugin knows
        raise RuntimeError(
            f'{error}; say how much to use of it: max_memory={{{index}: "16GB", "cpu": "64GB"}}'
        ) from error


def _get_max_memory(measure):
    from accelerate.utils.modeling import logger

    def get_max_memory(max_memory=None):
        if not is_tpu_available():
            return measure(max_memory)
        # A device is a number here. The order counts: they are filled in this one.
        devices = range(torch.tpu.device_count())
        if max_memory is None:
            return {**{index: _free_memory(index) for index in devices}, **measure(None)}
        numbered = {key: value for key, value in max_memory.items() if isinstance(key, int)}
        for index in numbered.keys() - set(devices):
            logger.warning(f"Device {index} is not available, available devices are {list(devices)}")
        others = measure({key: value for key, value in max_memory.items() if key not in numbered})
        return {**{index: _bytes(numbered[index]) for index in sorted(numbered)}, **others}

    return get_max_memory


def _clear_device_cache(clear):
    def clear_device_cache(garbage_collection=False):
        clear(garbage_collection)
        if is_tpu_available() and torch.tpu.is_initialized():
            torch.tpu.empty_cache()

    return clear_device_cache


def _should_reduce_batch_size(decide):
    def should_reduce_batch_size(exception):
        # accelerate reads the words of the message, and not every device's are CUDA's
        return isinstance(exception, torch.OutOfMemoryError) or decide(exception)

    return should_reduce_batch_size


def _runs_on_tpu() -> bool:
    from accelerate import PartialState

    return PartialState().device.type == "tpu"


def _random_states_file(folder, process_index: int):
    from accelerate.utils.constants import RNG_STATE_NAME

    return os.path.join(folder, f"{RNG_STATE_NAME}_{process_index}.pkl")


def _save_accelerator_state(save):
    def save_accelerator_state(
        output_dir, model_states, optimizers, schedulers, dataloaders, process_index, *rest, **more
    ):
        saved = save(output_dir, model_states, optimizers, schedulers, dataloaders, process_index, *rest, **more)
        if _runs_on_tpu():
            from accelerate.utils import load

            path = _random_states_file(saved, process_index)
            torch.save({**load(path), RNG_STATE_KEY: torch.tpu.get_rng_state_all()}, path)
        return saved

    return save_accelerator_state


def _load_accelerator_state(restore):
    def load_accelerator_state(input_dir, models, optimizers, schedulers, dataloaders, process_index, *rest, **more):
        restored = restore(input_dir, models, optimizers, schedulers, dataloaders, process_index, *rest, **more)
        path = _random_states_file(input_dir, process_index)
        if _runs_on_tpu() and os.path.isfile(path):
            from accelerate.utils import load

            set_random_states(load(path).get(RNG_STATE_KEY, []))  # a checkpoint of another device has none
        return restored

    return load_accelerator_state


def _simple_launcher(several):
    def before(launch):
        def simple_launcher(args):
            on_cpu = args.cpu or os.environ.get("ACCELERATE_USE_CPU")
            (several if (args.num_processes or 1) > 1 and not on_cpu and is_tpu_available() else launch)(args)

        return simple_launcher

    return before


def apply_to_launcher(launch: ModuleType) -> None:
    """Teach an imported ``accelerate.commands.launch`` to start several processes where several are asked for."""
    put_before({launch.simple_launcher: _simple_launcher(launch.multi_gpu_launcher)})


def _get_backend(get):
    def get_backend():
        backend = get()
        if backend[0] != "cpu" or not is_tpu_available():
            return backend
        return "tpu", torch.tpu.device_count(), torch.tpu.memory_allocated

    return get_backend


def apply_to_testing(testing: ModuleType) -> None:
    """Teach an imported ``accelerate.test_utils.testing`` its device, which guides of Hugging Face's ask it for too."""
    put_before({testing.get_backend: _get_backend})
    # what the module itself asked while it was imported
    testing.torch_device, testing.device_count, testing.memory_allocated_func = testing.get_backend()


def apply(accelerate: ModuleType) -> None:
    """Teach an imported accelerate about tpu."""
    put_before_method(accelerate.PartialState, "default_device", _default_device)
    put_before_method(accelerate.PartialState, "_prepare_backend", _prepare_backend)
    put_before_method(accelerate.PartialState, "set_device", _set_device)
    put_before(
        {
            accelerate.utils.modeling.get_max_memory: _get_max_memory,
            accelerate.utils.memory.clear_device_cache: _clear_device_cache,
            accelerate.utils.memory.should_reduce_batch_size: _should_reduce_batch_size,
            accelerate.checkpointing.save_accelerator_state: _save_accelerator_state,
            accelerate.checkpointing.load_accelerator_state: _load_accelerator_state,
        }
    )
