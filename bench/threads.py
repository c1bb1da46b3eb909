"""How many threads a benchmark takes."""

import torch
import torch_tpu


def use_threads(count: int) -> None:
    """As many on each side: PyTorch's number does not reach the software TPU's pool."""
    torch.set_num_threads(count)
    torch.tpu.init()
    torch_tpu._C.set_threads(count)
