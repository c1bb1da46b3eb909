"""The page of operators: it says what is registered, and what it says is so."""

from pathlib import Path

import pytest

import torch
from torch_tpu import cli, operators

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators.md"
LISTED = operators.operators()
BY_NAME = {operator.name: operator for operator in LISTED}


def made_with_this_version() -> bool:
    return f"PyTorch {torch.__version__.split('+')[0]} " in PAGE.read_text()


@pytest.mark.skipif(not made_with_this_version(), reason="docs/operators.md was made with another PyTorch")
def test_page_is_what_is_registered():
    assert PAGE.read_text() == operators.markdown(LISTED), "ttpu ops --markdown > docs/operators.md"


def test_every_unsupported_operator_has_a_reason():
    assert [o.name for o in LISTED if o.status == operators.UNSUPPORTED and not o.reason] == []


def test_core_operators_are_all_supported():
    core = [o for o in LISTED if o.core]
    assert len(core) > 150
    assert [o.name for o in core if o.status == operators.UNSUPPORTED] == []


def test_host_operators_are_factorisations():
    families = ("linalg_", "_linalg_", "geqrf", "ormqr", "lu_unpack")
    assert all(o.name.startswith(families) for o in LISTED if o.status == operators.HOST)


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in operators.REASONS])
def test_reasons_are_all_needed(pattern):
    reason = dict(operators.REASONS)[pattern]
    assert any(o.reason == reason for o in LISTED)


def counted(call) -> dict:
    torch.tpu.reset_counters()
    call()
    torch.tpu.synchronize()
    return torch.tpu.counters()


def matrix(*sizes: int) -> torch.Tensor:
    return torch.rand(*sizes, device="tpu") + torch.eye(sizes[-1], device="tpu")


NATIVE = {
    "add.Tensor": lambda: torch.ops.aten.add.Tensor(matrix(2, 2), 1),
    "mm": lambda: torch.mm(matrix(3, 3), matrix(3, 3)),
    "_softmax": lambda: torch.softmax(matrix(3, 3), -1),
    "sort.stable": lambda: torch.sort(matrix(3, 3)),
    "_cholesky_solve_helper": lambda: torch.cholesky_solve(matrix(3, 3), matrix(3, 3)),
    "unique_dim": lambda: torch.unique(matrix(3, 3), dim=1),
    "bincount": lambda: torch.bincount(torch.tensor([1, 2], device="tpu")),
}
COMPOSED = {
    "permute": lambda: matrix(2, 3, 3).permute(2, 0, 1) + 1,
    "slice_scatter": lambda: torch.slice_scatter(matrix(4, 4), matrix(4, 4)[1:3], 0, 1, 3),
    "rand": lambda: torch.rand(3, device="tpu"),
    "avg_pool1d": lambda: torch.nn.functional.avg_pool1d(matrix(2, 4, 4), 2),
}
HOST = {
    "linalg_qr": lambda: torch.linalg.qr(matrix(3, 3)),
    "_linalg_eigh": lambda: torch.linalg.eigh(matrix(3, 3)),
    "linalg_inv_ex": lambda: torch.linalg.inv(matrix(3, 3)),
}
UNSUPPORTED = {
    "_to_sparse": lambda: matrix(3, 3).to_sparse(),
    "quantize_per_tensor": lambda: torch.quantize_per_tensor(matrix(3, 3), 0.1, 0, torch.quint8),
    "to_mkldnn": lambda: torch.ops.aten.to_mkldnn(matrix(3, 3)),
}


@pytest.mark.parametrize("name", NATIVE)
def test_native_operators_run_here(name):
    assert BY_NAME[name].status == operators.NATIVE
    counters = counted(NATIVE[name])
    assert counters["ops_recorded"] > 0 and counters["host"] == counters["fallbacks"] == {}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_operators_consist_of_native_ones(name):
    assert BY_NAME[name].status == operators.COMPOSED
    counters = counted(COMPOSED[name])
    assert counters["ops_recorded"] > 0 and counters["host"] == counters["fallbacks"] == {}


@pytest.mark.parametrize("name", HOST)
def test_host_operators_are_counted_as_such(name):
    assert BY_NAME[name].status == operators.HOST
    assert counted(HOST[name])["host"] == {f"aten::{name}": 1}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_operators_raise(name):
    assert BY_NAME[name].status == operators.UNSUPPORTED
    with pytest.raises((NotImplementedError, RuntimeError)):
        UNSUPPORTED[name]()


def test_assertions_of_tensors_are_raised_at_the_call():
    holds, fails = torch.ones(1, device="tpu"), torch.zeros(1, device="tpu")
    torch._assert_async(holds)
    torch._assert_async(holds, "never")
    with pytest.raises(RuntimeError, match="nonzero value"):
        torch._assert_async(fails)
    with pytest.raises(RuntimeError, match="so it is"):
        torch._assert_async(fails, "so it is")
    token = torch.ops.aten._functional_assert_async.msg(holds, "", torch._make_dep_token(device="tpu"))
    assert token.device.type == "tpu"


def test_command_lists_and_filters(capsys):
    cli.main(["ops", "cholesky", "--status", "native"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{len(lines) - 1} operators: {len(lines) - 1} native")
    assert any(line.startswith("linalg_cholesky_ex ") for line in lines)
    cli.main(["ops", "--core", "--status", "unsupported"])
    assert capsys.readouterr().out.startswith("0 operators")
