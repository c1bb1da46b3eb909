"""Images whose channels lie innermost (channels_last): results have the strides that the CPU gives them."""

import copy

import pytest
import torch.nn.functional as F
from support import assert_values

import torch
from torch import nn

CALLS = {
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool2d indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[1],
    "max_unpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": F.instance_norm,
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "relu": F.relu,
    "gelu": F.gelu,
    "softmax": lambda x: F.softmax(x, 1),
    "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]),
    "broadcast": lambda x: x + x[:, :, :1, :1],
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "constant pad": lambda x: F.pad(x, (1, 2, 0, 1)),
    "reflection pad": lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"),
    "replication pad": lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"),
    "circular pad": lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"),
    "roll": lambda x: x.roll((1, 2), (2, 3)),
    "roll all": lambda x: x.roll(1),
    "flip": lambda x: x.flip(2),
    "sort": lambda x: x.sort(1)[0],
    "mean": lambda x: x.mean(1, keepdim=True),
    "prelu": lambda x: F.prelu(x, torch.ones(4, dtype=x.dtype, device=x.device)),
    "grid_sample": lambda x: F.grid_sample(
        x, torch.zeros(2, 3, 3, 2, dtype=x.dtype, device=x.device), align_corners=False
    ),
    "index": lambda x: x[:, [0, 1]],
    "where": lambda x: torch.where(x > 0, x, -x),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "conversion": lambda x: x.to(torch.float16),
    "contiguous": lambda x: x.contiguous(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CALLS)
def test_strides(name, dtype):
    values = torch.randn(2, 4, 6, 6, dtype=dtype)
    results = []
    for device in ("cpu", "tpu"):
        x = values.to(device).to(memory_format=torch.channels_last).requires_grad_()
        y = CALLS[name](x)
        if y.requires_grad:
            y.sum().backward()
        results.append((y, x.grad))
    (y, y_grad), (z, z_grad) = results
    assert z.stride() == y.stride()
    assert_values(z.detach(), y.detach())
    if y_grad is not None:
        assert z_grad.stride() == y_grad.stride()
        assert_values(z_grad, y_grad)


MODULES = {
    "Conv2d": (nn.Conv2d(3, 4, 3), (2, 3, 6, 5)),
    "Conv2d grouped": (nn.Conv2d(4, 4, 3, groups=4), (2, 4, 6, 5)),
    "Conv2d of one image": (nn.Conv2d(3, 4, 3), (3, 6, 5)),
    "Conv2d reflect": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 6, 5)),
    "ConvTranspose2d": (nn.ConvTranspose2d(3, 4, (3, 2), stride=2, output_padding=1), (2, 3, 6, 5)),
    "Conv3d": (nn.Conv3d(3, 4, 2), (2, 3, 4, 6, 5)),
    "ConvTranspose3d": (nn.ConvTranspose3d(3, 4, 2), (2, 3, 4, 6, 5)),
    "ReflectionPad3d": (nn.ReflectionPad3d(1), (2, 3, 4, 6, 5)),
    "ReplicationPad3d": (nn.ReplicationPad3d(1), (2, 3, 4, 6, 5)),
}


@pytest.mark.parametrize("of_weight", [False, True])
@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_strides_of_modules(name, of_input, of_weight):
    module, sizes = MODULES[name]
    last = torch.channels_last_3d if "3d" in name else torch.channels_last
    values = torch.randn(sizes)
    results = []
    for device in ("cpu", "tpu"):
        here = copy.deepcopy(module).to(device).to(memory_format=last if of_weight else torch.contiguous_format)
        x = values.to(device)
        if of_input and x.dim() != 3:
            x = x.to(memory_format=last)
        results.append(here(x))
    y, z = results
    assert z.stride() == y.stride()
    assert_values(z.detach(), y.detach())


MIXED = {
    "conv2d": lambda d: F.conv2d(torch.ones(1, 2, 3, 3, device=d), torch.ones(2, 2, 1, 1, device=d).double()),
    "conv2d bias": lambda d: F.conv2d(
        torch.ones(1, 2, 3, 3, device=d), torch.ones(2, 2, 1, 1, device=d), torch.ones(2, device=d).double()
    ),
    "conv2d channels last": lambda d: F.conv2d(
        torch.ones(1, 2, 3, 3, device=d).to(memory_format=torch.channels_last),
        torch.ones(2, 2, 1, 1, device=d).double(),
    ),
    "grid_sample": lambda d: F.grid_sample(
        torch.ones(1, 2, 3, 3, device=d), torch.ones(1, 2, 2, 2, device=d).double(), align_corners=False
    ),
    "batch_norm": lambda d: F.batch_norm(
        torch.ones(1, 2, 3, 3, device=d).double(), torch.ones(2, device=d), torch.ones(2, device=d)
    ),
    "batch_norm narrow": lambda d: F.batch_norm(
        torch.ones(1, 2, 3, 3, device=d), torch.ones(2, device=d).bfloat16(), torch.ones(2, device=d).bfloat16()
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_dtypes_are_refused(name):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError, match=r"dtype|datatype|type"):
            MIXED[name](device)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convolution_of_many_images(dtype, layout):
    """More than the software TPU pads at a time, forward and backward."""
    x = torch.randn(7, 32, 100, 90, dtype=dtype).to(memory_format=layout)
    module = nn.Conv2d(32, 48, 3, padding=1, dtype=dtype).to(memory_format=layout)
    results = []
    for device in ("cpu", "tpu"):
        inputs = x.clone().to(device).requires_grad_()
        own = copy.deepcopy(module).to(device)
        result = own(inputs)
        result.float().square().mean().backward()
        results.append([result, inputs.grad, own.weight.grad, own.bias.grad])
    for expected, actual in zip(*results, strict=True):
        assert_values(actual, expected)
