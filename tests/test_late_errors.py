"""Bad values that only the device sees: the exception is of the CPU's type, and its message names the operator."""

import pytest
import torch.nn.functional as F

import torch


class Operands:
    """What the calls below use, on one device: a good tensor, and indices that are none."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.x = torch.arange(12.0, device=device).reshape(3, 4)
        self.high = torch.tensor([0, 9], device=device)
        self.low = torch.tensor([0, -9], device=device)
        self.high_row = torch.full((1, 4), 9, device=device)
        self.low_row = torch.full((1, 4), -1, device=device)
        self.row = torch.ones(1, 4, device=device)
        self.rows = torch.ones(2, 4, device=device)

    def zeros(self, *sizes: int) -> torch.Tensor:
        return torch.zeros(sizes, device=self.device)

    def full(self, sizes: tuple[int, ...], value: float) -> torch.Tensor:
        return torch.full(sizes, value, device=self.device)

    def list(self, *values: float, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.tensor(values, device=self.device, dtype=dtype)


CALLS = {
    "gather": lambda o: torch.gather(o.x, 0, o.high_row),
    "gather neg": lambda o: torch.gather(o.x, 0, o.low_row),
    "scatter": lambda o: o.x.scatter(0, o.high_row, o.row),
    "scatter neg": lambda o: o.x.scatter(0, o.low_row, o.row),
    "scatter value": lambda o: o.x.scatter(0, o.high_row, 1.0),
    "scatter_add": lambda o: o.x.scatter_add(0, o.high_row, o.row),
    "scatter_reduce": lambda o: o.x.scatter_reduce(0, o.high_row, o.row, "amax"),
    "scatter reduce=": lambda o: o.x.scatter(0, o.high_row, o.row, reduce="add"),
    "index_select": lambda o: o.x.index_select(0, o.high),
    "index_select neg": lambda o: o.x.index_select(0, o.low),
    "index_add": lambda o: o.x.index_add(0, o.high, o.rows),
    "index_add neg": lambda o: o.x.index_add(0, o.low, o.rows),
    "index_copy": lambda o: o.x.index_copy(0, o.high, o.rows),
    "index_fill": lambda o: o.x.index_fill(0, o.high, 1.0),
    "index_fill neg": lambda o: o.x.index_fill(0, o.low, 1.0),
    "index_reduce": lambda o: o.x.index_reduce(0, o.high, o.rows, "prod"),
    "index_put": lambda o: o.x.index_put((o.high,), o.row[0, 0]),
    "index_put acc": lambda o: o.x.index_put((o.high,), o.row[0, 0], accumulate=True),
    "index": lambda o: o.x[o.high],
    "take": lambda o: o.x.take(o.high * 10),
    "take_along_dim": lambda o: torch.take_along_dim(o.x, o.high_row, 0),
    "put": lambda o: o.x.put(o.high * 10, o.list(1.0, 1.0)),
    "embedding": lambda o: F.embedding(o.high, o.x),
    "embedding neg": lambda o: F.embedding(o.low, o.x),
    "embedding_bag": lambda o: F.embedding_bag(o.high, o.x, o.list(0)),
    "nll": lambda o: F.nll_loss(o.x, o.list(0, 9, 1)),
    "nll2d": lambda o: F.nll_loss(o.x.reshape(1, 3, 2, 2), o.full((1, 2, 2), 7)),
    "ce": lambda o: F.cross_entropy(o.x, o.list(0, -9, 1)),
    "multi_margin": lambda o: F.multi_margin_loss(o.x, o.list(0, 9, 1)),
    "multilabel_margin": lambda o: F.multilabel_margin_loss(o.x, o.full((3, 4), 9)),
    "one_hot": lambda o: F.one_hot(o.list(5, 1), 3),
    "one_hot neg": lambda o: F.one_hot(o.list(-5, 1)),
    "bincount": lambda o: torch.bincount(o.list(-1)),
    "bce": lambda o: F.binary_cross_entropy(o.x, o.x),
    "multinomial neg": lambda o: torch.multinomial(o.list(1.0, -1.0), 1),
    "multinomial0": lambda o: torch.multinomial(o.zeros(3), 2),
    "bernoulli": lambda o: torch.bernoulli(o.x),
    "max_unpool": lambda o: F.max_unpool2d(o.x.reshape(1, 1, 3, 4), o.full((1, 1, 3, 4), 999), 2),
    "repeat_interleave": lambda o: torch.repeat_interleave(o.list(1, -1)),
    "repeat_interleave out": lambda o: torch.repeat_interleave(o.x, o.list(1, 2, 1), 0, output_size=9),
    "floordiv": lambda o: o.x.int() // o.zeros(1).int(),
    "remainder": lambda o: o.x.int() % 0,
    "int pow": lambda o: o.list(2) ** -1,
    "cholesky": lambda o: torch.cholesky(-o.x[:3, :3]),
    "cholesky_inverse": lambda o: torch.cholesky_inverse(o.zeros(3, 3)),
    "inverse": lambda o: torch.inverse(o.zeros(3, 3)),
    "lu_solve": lambda o: torch.linalg.solve(o.zeros(3, 3), o.x),
    "eigh nan": lambda o: torch.linalg.eigh(o.full((3, 3), float("nan"))),
    "svd nan": lambda o: torch.linalg.svd(o.full((3, 3), float("nan"))),
    "eig nan": lambda o: torch.linalg.eig(o.full((3, 3), float("nan"))),
    "solve_triangular": lambda o: torch.linalg.solve_triangular(o.zeros(3, 3), o.x, upper=True),
    "ldl": lambda o: torch.linalg.ldl_factor(o.zeros(3, 3)).LD,
    "lu_factor": lambda o: torch.linalg.lu_factor(o.zeros(3, 3)).LU,
    "masked_scatter": lambda o: o.x.masked_scatter(o.x > 1, o.list(1.0, 1.0)),
    "segment_reduce": lambda o: torch.segment_reduce(o.x, "sum", lengths=o.list(1, 5)),
    "histogram": lambda o: torch.histc(o.list(float("inf"))),
    "bucketize": lambda o: torch.searchsorted(o.list(3, 1), o.list(2), sorter=o.list(0, 5)),
    "ctc": lambda o: F.ctc_loss(o.zeros(2, 1, 3), o.list([1, 2, 1]), torch.tensor([5]), torch.tensor([3])),
    "normal": lambda o: torch.normal(o.x, -o.x),
    "assert": lambda o: torch._assert_async(o.zeros()),
    "random_": lambda o: o.x.random_(5, 2),
    "uniform_": lambda o: o.x.uniform_(5, 2),
}


def outcome(name: str, device: str) -> tuple[type | None, str]:
    """The type and the message of what a call raises, at the latest when its result is read."""
    operands = Operands(device)
    try:
        result = CALLS[name](operands)
        for tensor in result if isinstance(result, tuple) else (result,):
            tensor.cpu() if tensor is not None else torch.tpu.synchronize()
    except Exception as error:
        return type(error), str(error)
    return None, ""


@pytest.mark.parametrize("name", CALLS)
def test_same_type_of_exception(name):
    expected, _ = outcome(name, "cpu")
    got, message = outcome(name, "tpu")
    assert got is expected, message


@pytest.mark.parametrize(
    "name", ["gather", "scatter_add", "index_add", "embedding", "cholesky", "cholesky_inverse", "take"]
)
def test_message_names_the_operator(name):
    assert name in outcome(name, "tpu")[1]
