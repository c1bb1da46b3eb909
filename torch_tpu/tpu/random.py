"""Random state: Philox, 16 bytes a device, the seed and then the offset."""

import torch
from torch_tpu import _C

__all__ = [
    "default_generators",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


class _Generators:
    """``torch.tpu.default_generators``: a sequence, one generator a device."""

    def __len__(self) -> int:
        return _C.device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        if not 0 <= index < len(self):
            raise IndexError(f"there is no device tpu:{index}")
        return _C.default_generator(index)


default_generators = _Generators()


def _generator(device) -> torch.Generator:
    from torch_tpu.tpu import _index

    return default_generators[_index(device)]


def get_rng_state(device="tpu") -> torch.Tensor:
    """The state of a device's generator, a ByteTensor of 16 on the CPU."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device="tpu") -> None:
    """Set the state of a device's generator from what ``get_rng_state`` gave."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Set the states of all devices' generators."""
    for generator, state in zip(default_generators, new_states, strict=True):
        generator.set_state(state)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device's generator. ``torch.manual_seed`` calls it; it does not start the device."""
    _C.seed_default_generators(int(seed) % 2**64)


def seed() -> int:
    """Seed the current device's generator from the system's randomness; returns the seed."""
    return _generator(None).seed()


def seed_all() -> None:
    """Seed every device's generator with one random seed."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(None).initial_seed()
