"""Each collective of tpu_dist: what it gives, in which order, and what it refuses."""

import datetime
import os

import pytest
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from processes import run

import torch

OPERATIONS = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
FLOATS = torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn
INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
DEFINED = (
    [(name, dtype) for dtype in FLOATS for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX")]
    + [(name, dtype) for dtype in INTEGERS for name in OPERATIONS]
    + [(name, torch.bool) for name in OPERATIONS if name != "AVG"]
    + [(name, torch.complex64) for name in ("SUM", "AVG")]
)
# 0-d, nothing, less than a rank each, one round, two rounds in parts that are not equal, in memory that is used again
SHAPES = (), (0, 3), (2,), (5, 7), (3, 30011), (3, 700001)


def of_rank(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor that a rank has, on the CPU: any process can make any rank's."""
    generator = torch.Generator().manual_seed(rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(1, 9, shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(
        dtype
    )


def reduced(name: str, tensors: list[torch.Tensor]) -> torch.Tensor:
    """In the order of the ranks, at least in float32."""
    dtype = tensors[0].dtype
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    result = tensors[0].to(wide)
    for tensor in tensors[1:]:
        result = OPERATIONS[name](result, tensor.to(wide))
    if name == "AVG":
        whole = not dtype.is_floating_point and not dtype.is_complex
        parts = torch.view_as_real(result) if dtype.is_complex else result
        parts.copy_(parts.div(len(tensors), rounding_mode="trunc" if whole else None))
    return result.to(dtype)


def same(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """To the bit."""
    actual = actual.cpu()
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (actual, expected)))


# ---- reductions --------------------------------------------------------------------------------------------------


def reductions() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, dtype in DEFINED:
        op = getattr(dist.ReduceOp, name)
        for shape in SHAPES if dtype in (torch.float32, torch.bfloat16, torch.int64) else SHAPES[2:4]:
            expected = reduced(name, [of_rank(r, dtype, shape) for r in range(size)])
            x = of_rank(rank, dtype, shape).to("tpu")
            dist.all_reduce(x, op=op)
            assert same(x, expected), (name, dtype, shape)
        shape = size * 3, 5
        x = of_rank(rank, dtype, shape).to("tpu")
        expected = reduced(name, [of_rank(r, dtype, shape) for r in range(size)])[rank * 3 : rank * 3 + 3]
        part = torch.empty(3, 5, dtype=dtype, device="tpu")
        dist.reduce_scatter_tensor(part, x, op=op)
        assert same(part, expected), (name, dtype)
        part = torch.empty(3, 5, dtype=dtype, device="tpu")
        dist.reduce_scatter(part, list(x.chunk(size)), op=op)
        assert same(part, expected), (name, dtype)
        dist.reduce(x, dst=1, op=op)
        whole = reduced(name, [of_rank(r, dtype, shape) for r in range(size)])
        assert same(x, whole if rank == 1 else of_rank(rank, dtype, shape)), (name, dtype)
    # each rank's own factor comes before the sum
    x = torch.full((4,), 2.0, device="tpu")
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(rank + 1.0))
    assert x.tolist() == [2.0 * sum(range(1, size + 1))] * 4
    # views are read and written where they lie
    whole = torch.arange(24.0, device="tpu").view(4, 6)
    dist.all_reduce(whole.t()[1:4:2])
    expected = torch.arange(24.0).view(4, 6)
    expected.t()[1:4:2] *= size
    assert torch.equal(whole.cpu(), expected)


def test_reductions():
    run(3, reductions)


# ---- what only moves ----------------------------------------------------------------------------------------------


def moves() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        for shape in ((), (0,), (5, 7), (2, 40000)):
            everyone = [of_rank(r, dtype, shape) for r in range(size)]
            mine = everyone[rank].to("tpu")

            def empty(*sizes, like=mine):
                return torch.empty(sizes, dtype=like.dtype, device="tpu")

            x = mine.clone()
            dist.broadcast(x, src=2)
            assert same(x, everyone[2])
            gathered = [empty(*shape) for _ in range(size)]
            dist.all_gather(gathered, mine)
            assert all(map(same, gathered, everyone))
            together = empty(size, *shape)
            dist.all_gather_into_tensor(together, mine)
            assert same(together, torch.stack(everyone))
            gathered = [empty(*shape) for _ in range(size)]
            dist.gather(mine, gathered if rank == 1 else None, dst=1)
            assert rank != 1 or all(map(same, gathered, everyone))
            x = empty(*shape)
            dist.scatter(x, [everyone[0].to("tpu") for _ in range(size)] if rank == 0 else None, src=0)
            assert same(x, everyone[0])
            received = [empty(*shape) for _ in range(size)]
            dist.all_to_all(received, [mine] * size)
            assert all(map(same, received, everyone))

    # columns, into columns
    x = torch.arange(6.0, device="tpu").view(2, 3).t() + 10 * rank
    columns = [torch.empty(2, 3, device="tpu").t() for _ in range(size)]
    dist.all_gather(columns, x)
    assert all(torch.equal(c.cpu(), torch.arange(6.0).view(2, 3).t() + 10 * r) for r, c in enumerate(columns))

    # rank r sends i + 1 rows to rank i
    rows = torch.full((size * (size + 1) // 2, 2), rank, device="tpu", dtype=torch.int32)
    received = torch.empty(size * (rank + 1), 2, device="tpu", dtype=torch.int32)
    dist.all_to_all_single(received, rows, [rank + 1] * size, [r + 1 for r in range(size)])
    assert received[:, 0].tolist() == [r for r in range(size) for _ in range(rank + 1)]
    # and nothing to rank 0
    rows = torch.full((size - 1,), float(rank), device="tpu")
    received = torch.empty(size if rank else 0, device="tpu")
    dist.all_to_all_single(received, rows, [int(rank > 0)] * size, [int(r > 0) for r in range(size)])
    assert received.tolist() == ([0.0, 1.0, 2.0] if rank else [])


def messages() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    behind, ahead = (rank - 1) % size, (rank + 1) % size
    # both ways at once, whatever the order
    got, sent = torch.empty(3, device="tpu"), torch.full((3,), float(rank), device="tpu")
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, ahead), dist.P2POp(dist.irecv, got, behind)]):
        work.wait()
    assert got.tolist() == [behind] * 3
    # tags tell messages apart, and a message may wait while a collective goes on
    if rank == 0:
        first = dist.isend(torch.ones(2, device="tpu"), 1, tag=1)
        second = dist.isend(torch.zeros(2, device="tpu", dtype=torch.bfloat16), 1, tag=2)
    dist.barrier()
    if rank == 0:
        first.wait(), second.wait()
    elif rank == 1:
        zeros, ones = torch.ones(2, device="tpu", dtype=torch.bfloat16), torch.zeros(2, device="tpu")
        dist.recv(zeros, 0, tag=2)
        dist.recv(ones, 0, tag=1)
        assert zeros.tolist() == [0, 0] and ones.tolist() == [1, 1]
    # from whoever comes
    if rank:
        dist.send(torch.full((2, 2), float(rank), device="tpu"), 0)
    else:
        who, what = [], torch.empty(2, 2, device="tpu")
        for _ in range(size - 1):
            who.append(dist.recv(what))
            assert what.tolist() == [[who[-1]] * 2] * 2
        assert sorted(who) == list(range(1, size))


def objects() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone = [None] * size
    dist.all_gather_object(everyone, {"rank": rank})
    assert everyone == [{"rank": r} for r in range(size)]
    known = [f"of {rank}", rank]
    dist.broadcast_object_list(known, src=1)
    assert known == ["of 1", 1]
    mine = [None]
    dist.scatter_object_list(mine, [[r] for r in range(size)] if rank == 0 else None, src=0)
    assert mine == [[rank]]


def all_moves() -> None:
    moves()
    messages()
    objects()


def test_moves():
    run(3, all_moves)


# ---- order, groups, compiled programs ------------------------------------------------------------------------------


def asynchronous() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((i + 1,), float(rank + i), device="tpu") for i in range(20)]
    works = [dist.all_reduce(t * 1, async_op=True) for t in tensors]  # of what is not computed yet
    for work in reversed(works):
        work.wait()
        assert work.is_completed() and work.is_success()
    for i, work in enumerate(works):
        assert work.result()[0].tolist() == [size * i + 3.0] * (i + 1)
    x = torch.ones(3, device="tpu")
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0 * size] * 3
    # a result feeds what comes behind it
    y = torch.full((4,), rank + 1.0, device="tpu")
    for _ in range(5):
        dist.all_reduce(y)
        y = y * 0.5
    assert y.tolist() == [6 * 1.5**4 / 2] * 4
    with dist._coalescing_manager(async_ops=True) as manager:
        for t in tensors:
            dist.all_reduce(t)
    manager.wait()
    assert [t[0].item() for t in tensors] == [size * i + 3.0 for i in range(20)]
    with dist._coalescing_manager(device=torch.device("tpu", rank), async_ops=True) as manager:
        for t in tensors:
            dist.broadcast(t, src=0)
    manager.wait()


def groups() -> None:
    rank = dist.get_rank()
    pair, alone = dist.new_group([0, 2]), dist.new_group([1])
    assert rank != 1 or dist.get_backend(alone) == "tpu_dist"
    x = torch.full((5,), float(rank), device="tpu")
    if rank in (0, 2):
        dist.all_reduce(x, group=pair)
    else:
        dist.all_reduce(x, op=dist.ReduceOp.AVG, group=alone)
    assert x.tolist() == [2.0 if rank != 1 else 1.0] * 5
    everyone = dist.new_group([0, 1, 2], backend="cpu:gloo,tpu:tpu_dist")
    for device in "cpu", "tpu":
        x = torch.ones(2, device=device)
        dist.all_reduce(x, group=everyone)
        assert x.tolist() == [3.0, 3.0]


def in_programs() -> None:
    size = dist.get_world_size()

    def step(x):
        total = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        return functional.all_gather_tensor(total + 1, 0, dist.group.WORLD).sum()

    compiled = torch.compile(step)
    for i in range(3):
        x = torch.full((4,), float(i), device="tpu")
        assert step(x).item() == compiled(x).item() == 4 * size * (2 * i * size + 1)


def everything_else() -> None:
    asynchronous()
    groups()
    in_programs()


def test_order_groups_and_programs():
    run(3, everything_else)


# ---- errors -------------------------------------------------------------------------------------------------------


def wrong_calls() -> None:
    size, op = dist.get_world_size(), dist.ReduceOp
    x, half = torch.ones(4, device="tpu"), torch.ones(8, device="tpu", dtype=torch.half)
    y, two, three = x.clone(), x[:2].clone(), x[:3].clone()
    for error, message, call, *arguments in (
        (ValueError, "all_reduce with ReduceOp.BAND is not defined for Float", dist.all_reduce, x, op.BAND),
        (ValueError, "ReduceOp.MAX is not defined for Comp", dist.reduce_scatter_tensor, two + 0j, x + 0j, op.MAX),
        (ValueError, "ReduceOp.AVG is not defined for Bool", dist.all_reduce, x > 0, op.AVG),
        (RuntimeError, "No backend type associated with device type cpu", dist.all_reduce, torch.ones(2)),
        (ValueError, "reduce_scatter_tensor in a group of 2 wants", dist.reduce_scatter_tensor, y, x),
        (ValueError, "all_gather_into_tensor in a group of 2 wants", dist.all_gather_into_tensor, y, x),
        (TypeError, "from Float to Half|from Half to Float", dist.all_gather_into_tensor, half, x),
        (ValueError, "all_gather wants one tensor a rank, 2 in all, got 1", dist.all_gather, [y], x),
        (ValueError, "all_gather wants tensors of one size", dist.all_gather, [two, two], x),
        (ValueError, "dimension 0 of the .*, 3, is not divisible", dist.all_to_all_single, three, three),
        (ValueError, "split sizes make 5, its dimension 0 is 4", dist.all_to_all_single, y, x, [2, 3], [2, 2]),
        (ValueError, "a split size is -1", dist.all_to_all_single, y, x, [5, -1], [2, 2]),
    ):
        with pytest.raises(error, match=message):
            call(*arguments)
    dist.all_reduce(x)  # and nobody lost step
    assert x.tolist() == [size] * 4


def test_wrong_calls():
    run(2, wrong_calls)


def out_of_step(shape: tuple[int, ...]) -> None:
    """One process reduces what the other one does not."""
    x = torch.ones(shape, device="tpu")
    dist.barrier()
    message = (
        r"rank . sent .* bytes of all_reduce, its collective 2, to this one, which is in all_reduce, its collective 2"
    )
    with pytest.raises(RuntimeError, match=message):
        dist.all_reduce(x[1:] if dist.get_rank() else x)
    with pytest.raises(RuntimeError, match="all_gather after a collective of this group failed: the processes are in"):
        dist.all_gather_into_tensor(torch.empty(2, device="tpu"), torch.ones(1, device="tpu"))
    assert torch.equal(x.cpu(), torch.ones(shape))


@pytest.mark.parametrize("shape", [(3,), (70001,)])
def test_processes_out_of_step_are_told(shape):
    run(2, out_of_step, shape, seconds=20)


def lose_a_process() -> None:
    x = torch.ones(70000, device="tpu")
    dist.all_reduce(x)
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(0)
    with pytest.raises(RuntimeError, match=r"[Cc]onnection|reset|closed|[Tt]imed out"):
        dist.all_reduce(x)
    assert x[0].item() == 2  # what it held


def test_a_lost_process_is_an_error():
    run(2, lose_a_process, seconds=20)


def wait_for_nobody() -> None:
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match=r"[Tt]imed out|timeout"):
            dist.all_reduce(torch.ones(3, device="tpu"))
        assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]  # the device goes on
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {dist.get_rank()}", "")
    store.wait(["done 0", "done 1"], datetime.timedelta(seconds=60))


def test_a_process_that_does_not_come_is_an_error():
    run(2, wait_for_nobody, seconds=3)
