"""Lightning 2.6: its accelerator named "tpu", for its Trainer and for Fabric, in the place of torch_xla's.

Lightning has an accelerator of this name that needs torch_xla; where that is installed it stays. Both of Lightning's
packages are served, ``lightning`` and the separate ``pytorch_lightning`` with ``lightning_fabric``.
"""

import importlib
import os
from types import ModuleType

import torch
from torch_tpu.integrations._common import (
    is_tpu_available,
    put_before,
    put_before_method,
    set_random_states,
    tpu_for_cpu,
)


class _TpuAccelerator:
    """What Lightning's Trainer and Fabric ask an accelerator, answered for tpu."""

    def setup_device(self, device: torch.device) -> None:
        """Make the device the current one."""
        if device.type != "tpu":
            raise ValueError(f"the accelerator is tpu, the device is {device}")
        torch.tpu.set_device(device)

    def teardown(self) -> None:
        """Give memory back that nobody uses."""
        torch.tpu.empty_cache()

    def get_device_stats(self, device: torch.device) -> dict:
        """What ``DeviceStatsMonitor`` logs."""
        return torch.tpu.memory_stats(device)

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """Numbers of devices, from their count (-1: all), their numbers, or either as a text."""
        count = torch.tpu.device_count()
        if isinstance(devices, str):
            devices = [int(d) for d in devices.split(",") if d.strip()] if "," in devices else int(devices)
        chosen = list(range(count if devices == -1 else devices)) if isinstance(devices, int) else list(devices)
        if not chosen or not all(0 <= index < count for index in chosen):
            raise ValueError(
                f"devices={devices} asks for tpu:{chosen}, and there are tpu:0 to tpu:{count - 1}; "
                f"TTPU_TOPOLOGY=v5e:2x2 makes the software TPU one of four"
            )
        return chosen

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """The devices of these numbers."""
        return [torch.device("tpu", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """One for each process that a launcher started here: a process drives one."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", 1))

    @staticmethod
    def is_available() -> bool:
        """Is tpu PyTorch's accelerator?"""
        return is_tpu_available()

    @staticmethod
    def name() -> str:
        """Its name in the registry."""
        return "tpu"

    def __reduce__(self):
        return _accelerator_again, self.place


def _part(library: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f"{library.__name__}.{name}")


def _accelerator_again(module: str, registry: str) -> _TpuAccelerator:
    """One in another process, which may not have imported the library yet."""
    return getattr(importlib.import_module(module), registry).get("tpu")


def _register(accelerators: ModuleType, registry: str) -> type:
    members = {"__module__": __name__, "place": (accelerators.__name__, registry)}
    accelerator = type("TPUAccelerator", (_TpuAccelerator, accelerators.Accelerator), members)
    getattr(accelerators, registry).register("tpu", accelerator, description=accelerator.__name__, override=True)
    return accelerator


def _teach_connector(
    connector: type, accelerator: type, strategy: type, precision: type, flags: tuple[str, str]
) -> None:
    """Let the class that puts a Trainer's or a Fabric's parts together choose those for this accelerator.

    ``flags`` are its attributes with the precision asked for and with a precision plugin given by the caller.
    """
    asked, given = flags

    def choose_strategy(choose):
        def _choose_strategy(self):
            if not isinstance(self.accelerator, accelerator):
                return choose(self)
            if self._num_nodes_flag * len(self._parallel_devices) * self.cluster_environment.world_size() > 1:
                return "ddp"
            return strategy(device=self._parallel_devices[0])

        return _choose_strategy

    def check_strategy(check):
        def _check_strategy_and_fallback(self):
            if not isinstance(self.accelerator, accelerator):
                return check(self)
            asked = self._accelerator_flag
            self._accelerator_flag = "gpu"  # what FSDP is checked for; "tpu" means torch_xla's strategies there
            try:
                check(self)
            finally:
                self._accelerator_flag = asked

        return _check_strategy_and_fallback

    def init_precision(init):
        def _check_and_init_precision(self):
            mixed = getattr(self, asked) in ("16-mixed", "bf16-mixed") and getattr(self, given) is None
            if mixed and isinstance(self.accelerator, accelerator):
                return precision(getattr(self, asked), "tpu")  # Lightning's own choice names cuda
            return init(self)

        return _check_and_init_precision

    put_before_method(connector, "_choose_strategy", choose_strategy)
    put_before_method(connector, "_check_strategy_and_fallback", check_strategy)
    put_before_method(connector, "_check_and_init_precision", init_precision)


def _ddp_device_ids(choose):
    def determine_ddp_device_ids(self):
        # with numbers, Lightning makes the model's copy within a stream of CUDA's
        return None if self.root_device.type == "tpu" else choose(self)

    return determine_ddp_device_ids


def _collect_rng_states(collect):
    def _collect_rng_states(include_cuda=True):
        states = collect(include_cuda)
        if is_tpu_available() and torch.tpu.is_initialized():
            states["torch.tpu"] = torch.tpu.get_rng_state_all()
        return states

    return _collect_rng_states


def _set_rng_states(restore):
    def _set_rng_states(rng_state_dict):
        restore(rng_state_dict)
        set_random_states(rng_state_dict.get("torch.tpu", []))

    return _set_rng_states


def apply_to_fabric(fabric: ModuleType) -> None:
    """Teach an imported ``lightning.fabric`` (or ``lightning_fabric``) about tpu."""
    accelerators, connectors, seed = (_part(fabric, name) for name in ("accelerators", "connector", "utilities.seed"))
    if accelerators.XLAAccelerator.is_available():
        return
    connector = connectors._Connector
    put_before_method(connector, "_choose_auto_accelerator", tpu_for_cpu)
    put_before_method(_part(fabric, "strategies.ddp").DDPStrategy, "_determine_ddp_device_ids", _ddp_device_ids)
    put_before(
        {
            _part(fabric, "utilities.device_parser")._select_auto_accelerator: tpu_for_cpu,
            seed._collect_rng_states: _collect_rng_states,
            seed._set_rng_states: _set_rng_states,
        }
    )
    _teach_connector(
        connector,
        _register(accelerators, "ACCELERATOR_REGISTRY"),
        connectors.SingleDeviceStrategy,
        connectors.MixedPrecision,
        ("_precision_input", "_precision_instance"),
    )


def apply_to_trainer(lightning: ModuleType) -> None:
    """Teach an imported ``lightning.pytorch`` (or ``pytorch_lightning``) about tpu."""
    accelerators, setup = _part(lightning, "accelerators"), _part(lightning, "trainer.setup")
    if accelerators.XLAAccelerator.is_available():
        return
    connectors = _part(lightning, "trainer.connectors.accelerator_connector")
    accelerator = _register(accelerators, "AcceleratorRegistry")
    _teach_connector(
        connectors._AcceleratorConnector,
        accelerator,
        connectors.SingleDeviceStrategy,
        connectors.MixedPrecision,
        ("_precision_flag", "_precision_plugin_flag"),
    )

    put_before_method(_part(lightning, "strategies.ddp").DDPStrategy, "determine_ddp_device_ids", _ddp_device_ids)

    def log_device_info(log):
        def _log_device_info(trainer):
            if not isinstance(trainer.accelerator, accelerator):
                return log(trainer)
            setup.rank_zero_info(f"TPU available: True, using: {trainer.num_devices} TPU cores")

        return _log_device_info

    put_before({setup._log_device_info: log_device_info})
