"""FlexAttention in compiled graphs: the fused attention of ``scaled_dot_product_attention`` where it means that.

A ``score_mod`` that adds something to the score, or hides it (ALiBi, relative positions, causal), is a bias, and a
``mask_mod`` is one of -inf; both are computed once for those heads and batches that they tell apart. Anything else goes
the way of PyTorch's own definition, which has the whole matrix of scores.
"""

import math
from collections.abc import Callable
from typing import Any

from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._higher_order_ops.flex_attention import _permute_strides, flex_attention, flex_attention_backward
from torch.nn.attention.flex_attention import _vmap_for_bhqkv

import torch
from torch import Tensor, fx

_aten = torch.ops.aten
_LN2 = math.log(2)


def _arguments(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _result(module: fx.GraphModule) -> Any:
    return next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0]


def _is_minus_infinity(value: Any) -> bool:
    if isinstance(value, fx.Node) and value.target in (_aten.full.default, _aten.scalar_tensor.default):
        value = value.args[-1]
    return isinstance(value, float) and value == -math.inf


def _keeps_score(node: fx.Node, score: set[fx.Node]) -> bool:
    """Does an operator over the score add something to it that knows nothing of it, or hide it?"""
    used = [x in score if isinstance(x, fx.Node) else False for x in node.args]
    if node.target is _aten.add.Tensor:
        return sum(used) == 1 and not node.kwargs
    if node.target is _aten.sub.Tensor:
        return used == [True, False] and not node.kwargs
    if node.target in (_aten.where.self, _aten.where.ScalarOther):
        hidden = [x for x, is_score in zip(node.args[1:], used[1:], strict=True) if not is_score]
        return not used[0] and len(hidden) == 1 and _is_minus_infinity(hidden[0])
    return False


def _is_bias(score_mod: fx.GraphModule) -> bool:
    """Is it ``score + something``, so that the something is what it makes of 0?"""
    score = {_arguments(score_mod)[0]}
    for node in score_mod.graph.nodes:
        if node.op == "call_function" and any(x in score for x in node.all_input_nodes):
            if not _keeps_score(node, score):
                return False
            score.add(node)
    return _result(score_mod) in score


def _is_causal(mask_mod: fx.GraphModule) -> bool:
    result, (_, _, row, column, *_) = _result(mask_mod), _arguments(mask_mod)
    forms = {_aten.ge.Tensor: (row, column), _aten.le.Tensor: (column, row)}
    return isinstance(result, fx.Node) and forms.get(result.target) == result.args


def _hides_nothing(mask_mod: fx.GraphModule) -> bool:
    result = _result(mask_mod)
    if not isinstance(result, fx.Node):
        return result is True
    return result.target is _aten.new_ones.default or (result.target is _aten.full.default and result.args[1] is True)


def _indices(query: Tensor, key: Tensor, module: fx.GraphModule, first: int) -> list[Tensor]:
    """The numbers of batches, heads, rows and columns; one batch or head where the function does not ask which."""
    batch, head = (bool(node.users) for node in _arguments(module)[first : first + 2])
    counts = query.size(0) if batch else 1, query.size(1) if head else 1, query.size(2), key.size(2)
    return [torch.arange(count, device=query.device) for count in counts]


def _bias(query: Tensor, key: Tensor, score_mod, mask_mod, score_buffers: tuple, mask_buffers: tuple) -> Tensor | None:
    """What is added to the scores, [batches or 1, heads or 1, rows, columns]; None: nothing."""
    bias = None
    with TransformGetItemToIndex():
        if _result(score_mod) is not _arguments(score_mod)[0]:
            indices = _indices(query, key, score_mod, 1)
            nothing = torch.zeros([len(index) for index in indices], device=query.device)
            run = _vmap_for_bhqkv(score_mod, prefix=(0,), suffix=(None,) * len(score_buffers))
            bias = run(nothing, *indices, *score_buffers).float()
        if not _hides_nothing(mask_mod):
            run = _vmap_for_bhqkv(mask_mod, prefix=(), suffix=(None,) * len(mask_buffers))
            mask = run(*_indices(query, key, mask_mod, 0), *mask_buffers)
            shown = torch.zeros((), device=query.device) if bias is None else bias
            bias = torch.where(mask, shown, -math.inf)
    return bias


def _can_be_fused(query: Tensor, key: Tensor, value: Tensor, score_mod: Any, mask_mod: Any) -> bool:
    plain = query.dtype in (torch.float32, torch.bfloat16, torch.float16) and query.numel() > 0 and key.numel() > 0
    plain = plain and query.dtype == key.dtype == value.dtype and value.numel() > 0
    traced = isinstance(score_mod, fx.GraphModule) and isinstance(mask_mod, fx.GraphModule)
    return plain and traced and _is_bias(score_mod)


def _mask_and_bias(query, key, score_mod, block_mask, score_buffers, mask_buffers) -> tuple[bool, Tensor | None]:
    """Whether it is causal and nothing else, and the bias."""
    mask_mod = block_mask[-1]
    if _is_causal(mask_mod) and _result(score_mod) is _arguments(score_mod)[0]:
        return True, None
    return False, _bias(query, key, score_mod, mask_mod, score_buffers, mask_buffers)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable,
    block_mask: tuple,
    scale: float,
    kernel_options: dict[str, Any],
    score_buffers: tuple = (),
    mask_buffers: tuple = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """PyTorch's higher-order operator ``flex_attention``: the output, the logsumexp over ln 2, the greatest scores."""
    if kernel_options.get("OUTPUT_MAX") or not _can_be_fused(query, key, value, score_mod, block_mask[-1]):
        return flex_attention(
            query, key, value, score_mod, block_mask, scale, kernel_options, score_buffers, mask_buffers
        )
    key, value = (x.expand(query.size(0), -1, -1, -1) for x in (key, value))
    causal, bias = _mask_and_bias(query, key, score_mod, block_mask, score_buffers, mask_buffers)
    out, logsumexp, *_ = _aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, bias, is_causal=causal, scale=scale
    )
    logsumexp = logsumexp / _LN2
    return _permute_strides(out, query.stride()), logsumexp, logsumexp.new_empty(0)


def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    grad_out: Tensor | None,
    grad_logsumexp: Tensor | None,
    score_mod: Callable,
    joint: Callable,
    block_mask: tuple,
    scale: float,
    kernel_options: dict[str, Any],
    score_buffers: tuple = (),
    mask_buffers: tuple = (),
) -> tuple[Tensor, Tensor, Tensor, tuple]:
    """PyTorch's higher-order operator ``flex_attention_backward``."""
    fused = isinstance(joint, fx.GraphModule) and all(x is None for x in _result(joint)[1:])  # no gradients of buffers
    fused = fused and grad_out is not None and grad_logsumexp is None and key.size(0) == query.size(0)
    if not fused or not _can_be_fused(query, key, value, score_mod, block_mask[-1]):
        return flex_attention_backward(
            query,
            key,
            value,
            out,
            logsumexp,
            grad_out,
            grad_logsumexp,
            score_mod,
            joint,
            block_mask,
            scale,
            kernel_options,
            score_buffers,
            mask_buffers,
        )
    causal, bias = _mask_and_bias(query, key, score_mod, block_mask, score_buffers, mask_buffers)
    none = torch.zeros((), dtype=torch.int64, device=query.device)
    wanted = [True, True, True, False]
    lengths = [none, none, query.size(2), key.size(2)]
    gradients = _aten._scaled_dot_product_fused_attention_overrideable_backward(
        grad_out, query, key, value, bias, wanted, out, logsumexp * _LN2, *lengths, 0.0, causal, none, none, scale=scale
    )
    like = zip(gradients[:3], (query, key, value), strict=True)
    return *(_permute_strides(gradient, x.stride()) for gradient, x in like), (None,) * len(score_buffers)


REPLACED = {flex_attention: attention, flex_attention_backward: backward}
