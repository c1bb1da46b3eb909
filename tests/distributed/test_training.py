"""PyTorch's ways to train in several processes: each gives the weights that one process with the whole batch gets."""

import functools
import os
import tempfile

import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from processes import run
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, randn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint as recompute

import torch
from torch import nn

BATCH, STEPS = 8, 4


class Block(nn.Module):
    """A residual block of two products, recomputed in the backward pass if wanted."""

    def __init__(self, recomputed: bool = False):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.recomputed = recomputed

    def inside(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    def forward(self, x):
        return recompute(self.inside, x, use_reentrant=False) if self.recomputed else self.inside(x)


def make_model(recomputed: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), Block(recomputed), Block(recomputed), nn.Linear(16, 4)).to("tpu")


def whole_batch() -> torch.Tensor:
    return torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(1)).to("tpu")


def my_batch() -> torch.Tensor:
    return whole_batch().chunk(dist.get_world_size())[dist.get_rank()]


def train(model, x, optimizer=None, steps=STEPS):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model


def weights(model) -> list[torch.Tensor]:
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


@functools.cache
def expected() -> list[torch.Tensor]:
    return weights(train(make_model(), whole_batch()))


def check_weights(found: list[torch.Tensor], **tolerances) -> None:
    for one, other in zip(found, expected(), strict=True):
        torch.testing.assert_close(one, other, **tolerances)


def shard(model, **options):
    for layer in model:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


# ---- copies of the model ------------------------------------------------------------------------------------------


def copies() -> None:
    for options in (
        {},
        {"device_ids": [dist.get_rank()]},
        {"static_graph": True, "gradient_as_bucket_view": True},
        {"bucket_cap_mb": 0.001, "find_unused_parameters": True},
    ):
        model = DistributedDataParallel(make_model(), **options)
        check_weights(weights(train(model, my_batch())))
    check_weights(weights(train(DistributedDataParallel(make_model(recomputed=True)), my_batch())))

    model = DistributedDataParallel(make_model())
    check_weights(weights(train(torch.compile(model), my_batch())))

    model = DistributedDataParallel(make_model())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    check_weights(weights(train(model, my_batch())), atol=0.01, rtol=0.1)

    model = DistributedDataParallel(make_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    check_weights(weights(train(model, my_batch(), optimizer)))

    # gradients of parts of a batch that are added up before they are exchanged
    model = DistributedDataParallel(make_model())
    first, second = my_batch().chunk(2)
    with model.no_sync():
        model(first).square().mean().div(2).backward()
    model(second).square().mean().div(2).backward()
    alone = make_model()
    alone(whole_batch()).square().mean().backward()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)

    # statistics over all processes' examples
    def with_norm(kind):
        torch.manual_seed(0)  # a bias before a norm has no gradient, and Adam would follow its rounding
        return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), kind(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).to(
            "tpu"
        )

    images = torch.randn(BATCH, 3, 4, 4, generator=torch.Generator().manual_seed(1)).to("tpu")
    alone = train(with_norm(nn.BatchNorm2d), images)
    mine = images.chunk(dist.get_world_size())[dist.get_rank()]
    together = train(DistributedDataParallel(with_norm(nn.SyncBatchNorm)), mine).module
    for (name, one), other in zip(together.state_dict().items(), alone.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, msg=lambda message, name=name: f"{name}: {message}")


def test_copies_of_the_model():
    run(2, copies)


# ---- parts of the model -------------------------------------------------------------------------------------------


def parts() -> None:
    check_weights(weights(train(shard(make_model()), my_batch())))
    check_weights(weights(train(shard(make_model(recomputed=True), reshard_after_forward=False), my_batch())))
    check_weights(weights(train(torch.compile(shard(make_model())), my_batch())))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    check_weights(weights(train(shard(make_model(), mp_policy=policy), my_batch())), atol=0.03, rtol=0.1)

    older = FullyShardedDataParallel(make_model(), device_id=torch.device("tpu", dist.get_rank()), use_orig_params=True)
    train(older, my_batch())
    with FullyShardedDataParallel.summon_full_params(older):
        check_weights(weights(older))

    # a checkpoint of the parts, read by parts that hold something else
    place = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(place, src=0)
    model = shard(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train(model, my_batch(), optimizer, steps=2)
    path = os.path.join(place[0], "checkpoint")
    checkpoint.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=path)
    other = shard(make_model())
    fresh = torch.optim.AdamW(other.parameters(), lr=1e-2)
    train(other, my_batch() * 3, fresh, steps=1)  # so that there is state to load into
    state = {"model": other.state_dict(), "optimizer": fresh.state_dict()}
    checkpoint.load(state, checkpoint_id=path)
    other.load_state_dict(state["model"])
    fresh.load_state_dict(state["optimizer"])
    check_weights(weights(train(other, my_batch(), fresh, steps=STEPS - 2)))


def tensors_in_parts() -> None:
    mesh = init_device_mesh("tpu", (dist.get_world_size(),), mesh_dim_names=("parts",))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = make_model()
    for block in model[1:3]:
        parallelize_module(block, mesh, plan)
    check_weights(weights(train(model, whole_batch())))
    model = make_model()
    norm = parallelize_module(model[1].norm, mesh, SequenceParallel())
    x = torch.randn(2, 4, 16, generator=torch.Generator().manual_seed(2)).to("tpu")
    mine = x.chunk(dist.get_world_size(), dim=1)[dist.get_rank()]
    torch.testing.assert_close(norm(mine).full_tensor(), make_model()[1].norm(x))

    a, b = (torch.randn(8, 8, generator=torch.Generator().manual_seed(i)).to("tpu") for i in range(2))
    product = distribute_tensor(a, mesh, [Shard(1)]) @ distribute_tensor(b, mesh, [Shard(0)])
    torch.testing.assert_close(product.redistribute(mesh, [Replicate()]).to_local(), a @ b)

    torch.tpu.manual_seed(3)
    drawn = randn(64, 64, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
    first, second = drawn.chunk(2)
    assert not torch.equal(first, second) and abs(drawn.std().item() - 1) < 0.1


def all_parts() -> None:
    parts()
    tensors_in_parts()


def test_parts_of_the_model():
    run(2, all_parts)
