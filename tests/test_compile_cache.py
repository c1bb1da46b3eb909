"""A second process finds what a first one compiled: AOTAutograd's graphs in PyTorch's cache, programs in ours."""

import json
import pathlib

import pytest
from support import in_fresh_python

import torch

PROGRAM = """
import json
import torch, torch_tpu
from torch._dynamo.utils import counters
torch.manual_seed(0)
layers = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
model = torch.nn.Sequential(*layers).to("tpu")
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(5, 8).to("tpu"), torch.tensor([0, 1, 2, 3, 0]).to("tpu")
losses = []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(compiled(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
with torch.no_grad():
    losses += [compiled(torch.randn(n, 8).to("tpu")).sum().item() for n in (3, 4, 6)]
found = torch.tpu.counters()
print(json.dumps({"losses": losses, "built": found["programs_built"], "compiled": found["programs_compiled"],
                  "loaded": found["programs_loaded"], "graphs": counters["aot_autograd"]}))
"""


def run(folder: pathlib.Path, **environment: str) -> dict:
    """What the program computes and compiles, in a process of its own that keeps its caches in a folder."""
    variables = {"TTPU_CACHE": "always", "TTPU_CACHE_DIR": str(folder / "ttpu"), **environment}
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")
    done = in_fresh_python(PROGRAM, **variables)
    assert "unable to serialize" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_second_process_compiles_nothing(tmp_path):
    first = run(tmp_path)
    assert first["built"] > 3 and first["compiled"] > 0 and first["loaded"] == 0
    assert first["graphs"]["autograd_cache_saved"] == first["graphs"]["autograd_cache_miss"] == 2  # training and not
    second = run(tmp_path)
    assert second["built"] == second["compiled"] == 0 and second["loaded"] == first["built"]
    assert second["graphs"]["autograd_cache_hit"] == 2 and "autograd_cache_miss" not in second["graphs"]
    assert second["losses"] == first["losses"]

    entries = [path for path in (tmp_path / "torch" / "aotautograd").rglob("*") if path.is_file()]
    programs = list((tmp_path / "ttpu").glob("*.program"))
    assert len(entries) == 2 and len(programs) >= first["built"]
    for number, path in enumerate(entries + programs):  # each in another way
        content = path.read_bytes()
        path.write_bytes([content[: len(content) // 2], b"", b"\x80\x04N.", bytes(reversed(content))][number % 4])
    damaged = run(tmp_path)
    assert damaged["losses"] == first["losses"] and damaged["built"] == first["built"]
    assert "autograd_cache_hit" not in damaged["graphs"]


def test_inputs_of_one_storage_are_another_entry():
    """PyTorch's key for a graph knows nothing of it."""

    def change(x, y):
        x.mul_(3)
        return y + 1

    for shared in (True, False, True):
        torch._dynamo.reset()
        base = torch.arange(6.0, device="tpu")
        x, y = base[:4], base[2:] if shared else base[2:].clone()
        expected = [7.0, 10.0, 5.0, 6.0] if shared else [3.0, 4.0, 5.0, 6.0]
        assert torch.compile(change)(x, y).tolist() == expected


VIEWS = """
import torch, torch_tpu
from torch._dynamo.utils import counters
def views(x, w):
    y = torch.matmul(x, w)  # three dimensions: a product of two, then _unsafe_view
    return y[:, 1:], y[:, 0]
x, w = torch.ones(12, 6, 8, device="tpu"), torch.ones(8, 32, device="tpu", requires_grad=True)
print([tuple(y.shape) for y in torch.compile(views)(x, w)], counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_views_of_a_product_come_back(tmp_path):
    for hits in range(2):
        done = in_fresh_python(VIEWS, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
        assert done.stdout.splitlines()[-1] == f"[(12, 5, 32), (12, 32)] {hits}", done.stderr


def test_caches_can_be_switched_off(tmp_path):
    with_caches = run(tmp_path, TTPU_CACHE="off", TORCHINDUCTOR_AUTOGRAD_CACHE="0")
    assert not (tmp_path / "ttpu").exists() and not list(tmp_path.rglob("aotautograd/*/*"))
    assert with_caches["graphs"].get("autograd_cache_saved", 0) == 0 and with_caches["built"] > 3


@pytest.mark.parametrize("constant", [1.0, 2.0])
def test_constants_are_part_of_a_graph(constant):
    """Entries are found by their graphs' text and metadata: what else a graph holds must not be taken from another."""
    torch._dynamo.reset()
    table = torch.full((4,), constant).tolist()
    compiled = torch.compile(lambda x: x + torch.tensor(table, device="tpu"))
    assert compiled(torch.zeros(4, device="tpu")).tolist() == [constant] * 4
