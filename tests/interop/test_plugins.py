"""torch.tpu on other PJRT plugins: XLA's own CPU plugin where it is installed, and the software TPU spoken to like one.

XLA's plugin is in the package lammps-jax-pjrt-cpu (requirements-plugins.txt); TTPU_TEST_PLUGIN names another library.
"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parent.parent
SUITE = TESTS / "ops" / "suite.py"
SOFTWARE_TPU = TESTS.parent / "torch_tpu" / "lib" / "libttpu_soft.so"
sys.path.insert(0, str(TESTS))
from support import in_fresh_python  # noqa: E402


def xla_plugin() -> str | None:
    """The path of XLA's CPU plugin."""
    named = os.environ.get("TTPU_TEST_PLUGIN")
    found = importlib.util.find_spec("lammps_jax_pjrt_cpu")
    folders = found.submodule_search_locations if found else ()
    paths = [pathlib.Path(named)] if named else [pathlib.Path(f) / "pjrt_c_api_cpu_plugin.so" for f in folders or ()]
    return next((str(p) for p in paths if p.is_file()), None)


def test_conformance():
    """Another client, pypjrt, finds nothing wrong with the software TPU, and nothing lacking of what it tries."""
    pytest.importorskip("pypjrt", reason="pypjrt is not installed (requirements-plugins.txt)")
    command = [sys.executable, "-m", "pypjrt.conform", str(SOFTWARE_TPU)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "TTPU_TOPOLOGY": "v5e:2x2"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed, unsupported, failed = map(
        int, re.search(r"(\d+) pass · (\d+) unsupported · \d+ skip · (\d+) FAIL", done.stdout).groups()
    )
    assert passed >= 56 and unsupported == failed == 0, done.stdout


@pytest.fixture(params=["xla", "text"])
def plugin(request, tmp_path) -> dict[str, str]:
    """The environment that chooses a plugin: XLA's, and the software TPU without our extension."""
    cache = {"TTPU_CACHE_DIR": str(tmp_path)}
    if request.param == "text":
        return cache | {"TTPU_PLUGIN": "soft", "TTPU_EXTENSION": "off"}
    path = xla_plugin()
    if path is None:
        pytest.skip("XLA's CPU plugin is not installed (lammps-jax-pjrt-cpu, or TTPU_TEST_PLUGIN)")
    return cache | {"TTPU_PLUGIN": path}


def test_info_names_the_plugin(plugin):
    code = "from torch_tpu import cli; cli.main(['info']); cli.main(['plugin', '--json'])"
    printed = in_fresh_python(code, **plugin).stdout
    assert "TTPU_PLUGIN" in printed
    report = json.loads(printed[printed.index("{") :])
    assert report["usable"] and not report["software"] and report["devices"]
    assert report["missing_required"] == []


def test_training_agrees_with_the_cpu(plugin):
    """A small network's losses, with the weights updated in place, and the same again from the disk cache."""
    code = """
import torch
def train(device):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 5))
    net = net.to(device)
    x, y = torch.randn(16, 12).to(device), torch.randint(5, (16,)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
torch.testing.assert_close(train("tpu"), train("cpu"), rtol=1e-4, atol=1e-5)
print(torch.tpu.counters()["programs_loaded"], torch.tpu.counters()["programs_compiled"])
"""
    first = in_fresh_python(code, **plugin).stdout.split()
    again = in_fresh_python(code, **plugin).stdout.split()
    assert int(first[1]) > 0
    assert int(again[0]) > 0 and int(again[1]) == 0


def test_sizes_that_change_share_programs(plugin):
    """In buckets, with values that stay padded from one program to the next; and from the disk cache."""
    code = """
import torch
torch.manual_seed(0)
w = torch.randn(8, 8)
def f(x, w):
    scores = torch.softmax(x @ w @ x.transpose(1, 2), -1)
    y = torch.relu(scores @ x) + x.flip(1)
    if y.device.type == "tpu":
        torch.tpu.flush()
    return (y * 2).cumsum(1), y.flatten(0, 1).mean(0), y.argmax(1), torch.cat([x, y], 1)[:, 3:]
for length in (*range(5, 9), *range(13, 17)):
    x = torch.randn(2, length, 8)
    for a, b in zip(f(x.to("tpu"), w.to("tpu")), f(x, w)):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)
counters = torch.tpu.counters()
print(*(counters["programs_" + name] for name in ("built", "bucketed", "compiled", "loaded")))
"""
    built, bucketed, compiled, _ = map(int, in_fresh_python(code, TTPU_BUCKETS="always", **plugin).stdout.split())
    assert bucketed == built >= 16 and compiled < built
    _, bucketed, compiled, loaded = map(int, in_fresh_python(code, TTPU_BUCKETS="always", **plugin).stdout.split())
    assert bucketed == built and compiled == 0 and loaded > 0


def test_failed_checks(plugin):
    """An index out of range is an error where it is read, and spoils nothing else."""
    code = """
import pytest, torch
x = torch.arange(6.0, device="tpu")
bad = x[torch.tensor([1, 77], device="tpu")]
fine = x + 1
chain = bad * 2
for _ in range(5):
    chain = torch.sin(chain)
    torch.tpu.flush()
with pytest.raises(IndexError, match="77 is out of range"):
    chain.cpu()
assert fine.tolist() == [1, 2, 3, 4, 5, 6]
with pytest.raises(IndexError, match="77 is out of range"):
    bad.cpu()
torch.tpu.synchronize()
y = x[torch.tensor([7], device="tpu")]
with pytest.raises(IndexError, match="7 is out of range"):
    torch.tpu.synchronize()
assert (x * 2).sum().item() == 30
with pytest.raises(RuntimeError, match="positive-definite"):
    torch.linalg.cholesky(-torch.eye(3, device="tpu")).cpu()
"""
    in_fresh_python(code, **plugin)


def test_views_donation_and_devices(plugin):
    code = """
import torch
x = torch.zeros(4, 6, device="tpu")
kept = x.clone()
for i in range(3):
    x[1:3, ::2] += i + 1
    x.T[5] = 9
assert x.cpu().tolist()[1] == [6, 0, 6, 0, 6, 9] and kept.sum().item() == 0
e = torch.tpu.Event(enable_timing=True)
e.record()
e.synchronize()
assert e.query()
if torch.tpu.device_count() > 1:
    there = x.to("tpu:1") + 1
    assert there.device.index == 1 and there.to("tpu:0")[1, 5].item() == 10
y = torch.empty(0, 3, device="tpu")
assert y.sum().item() == 0 and (y + 1).cpu().shape == (0, 3)
for dtype in (torch.bool, torch.int8, torch.uint16, torch.bfloat16, torch.float16, torch.float64, torch.complex64):
    z = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    assert torch.cat([z.to("tpu").T, z.to("tpu").T], 1)[1:].cpu().equal(torch.cat([z.T, z.T], 1)[1:])
"""
    in_fresh_python(code, **plugin)


SLICE = (
    "add", "sub", "mul", "nn.functional.gelu", "nn.functional.layer_norm", "nn.functional.conv2d", "matmul", "softmax",
    "nn.functional.scaled_dot_product_attention", "cumsum", "sort", "topk", "gather", "scatter_add", "index_select",
    "nn.functional.embedding", "as_strided", "diagonal_copy", "lgamma", "erfinv", "where", "var_mean", "argmax",
)  # fmt: skip


def test_a_slice_of_the_operator_suite(plugin):
    """Operators of each family agree with PyTorch's CPU."""
    command = [sys.executable, str(SUITE), *SLICE, "--dtype", "float32", "--aspect", "values", "--samples", "2"]
    done = subprocess.run(command, env={**os.environ, **plugin}, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
