"""Fake kernels of operators whose own in PyTorch refuse what tpu takes.

A fake kernel says what sizes and dtype an operator's result has, which is all that ``torch.compile`` and
``torch.export`` ask for. Those here answer for tpu alone; for other devices PyTorch's own do as before.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch_tpu._imports import when_imported


def grouped_mm(
    mode: Any,
    function: Callable,
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Products of groups of rows, of any dtype; PyTorch's own takes bfloat16 only."""
    if left.device.type != "tpu":
        return NotImplemented
    if left.dim() == 2 and right.dim() == 2:
        sizes = [offs.size(0), left.size(0), right.size(1)]
    elif left.dim() == 2 or right.dim() == 2:
        sizes = [left.size(-2), right.size(-1)]
    else:
        sizes = [left.size(0), left.size(1), right.size(2)]
    with mode:
        return left.new_empty(sizes, dtype=out_dtype or left.dtype)


def install() -> None:
    """Have these asked before PyTorch's own, from the import of PyTorch's fake tensors on."""
    when_imported("torch._subclasses.fake_impls", _register)


def _register(fake_impls: ModuleType) -> None:
    kernels = {torch.ops.aten._grouped_mm.default: grouped_mm}
    for operator, kernel in kernels.items():
        fake_impls.register_op_impl(lambda function, operator=operator: function is operator)(kernel)
