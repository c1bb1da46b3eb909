"""``torch.distributed`` on tpu: the backend ``tpu_dist``, which process groups choose for tpu tensors.

The collectives stand in src/torch/distributed.cpp; docs/distributed.md has what runs on them.
"""

import torch
from torch_tpu import _C

NAME = _C.process_group_name


def _make_group(options, _pg_options):
    from torch.distributed import ProcessGroupGloo

    host = ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    return _C.process_group(host, options.timeout)


def install() -> None:
    """Register the backend; nothing, where PyTorch was built without ``torch.distributed`` or without Gloo."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_gloo_available():
        distributed.Backend.register_backend(NAME, _make_group, extended_api=True, devices=["tpu"])
