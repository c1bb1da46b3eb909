"""What PyTorch's users debug compilation with: TORCH_LOGS, TORCH_TRACE, explain, the minifier, lines in messages."""

import glob
import json
import re
import subprocess
import sys

import pytest
import torch.nn.functional as F
from support import in_fresh_python

import torch
from torch import nn


@pytest.fixture(autouse=True)
def fresh_dynamo(no_fallback):
    torch._dynamo.reset()
    yield


def run(code: str, **options) -> subprocess.CompletedProcess:
    return in_fresh_python("import torch, torch_tpu\n" + code, **options)


STEP = """
model = torch.nn.Linear(4, 3).to("tpu")
x = torch.ones(2, 4, device="tpu")
torch.compile(model)(x).sum().backward()
"""


def test_logs_show_stablehlo():
    error = run(STEP, TORCH_LOGS="output_code,aot_graphs").stderr
    assert "stablehlo_forward_0, compilation 0/0" in error and "stablehlo_backward_0" in error
    assert re.search(r'"stablehlo.dot_general"\(%\d+, %\d+\)', error)
    assert "torch.ops.aten.addmm.default" in error  # PyTorch's own part
    assert "stablehlo" not in run(STEP).stderr


def test_trace_has_stablehlo(tmp_path):
    run(STEP, TORCH_TRACE=str(tmp_path))
    (path,) = glob.glob(f"{tmp_path}/*.log")
    entries = [json.loads(line[line.index("{") :]) for line in open(path) if not line.startswith("\t") and "{" in line]
    artifacts = {e["artifact"]["name"]: e for e in entries if "artifact" in e}
    assert {"stablehlo_forward_0", "stablehlo_backward_0"} <= artifacts.keys()
    assert artifacts["stablehlo_forward_0"]["frame_id"] == 0 and artifacts["stablehlo_forward_0"]["has_payload"]
    assert any("aot_forward_graph" in e for e in entries)
    assert "func.func public @main" in open(path).read()


def test_explain():
    def function(x):
        y = x.sin()
        if y.sum().item() > 100:
            return y
        return y.cos()

    explained = torch._dynamo.explain(function)(torch.ones(3, device="tpu"))
    assert explained.graph_count == 2 and explained.graph_break_count == 1
    assert "item" in str(explained.break_reasons)


def test_messages_name_lines():
    def look_up(weight, first, second):
        found = F.embedding(first, weight)
        return found + F.embedding(second, weight)  # this line

    line = look_up.__code__.co_firstlineno + 2
    weight = torch.randn(4, 3, device="tpu")
    good, bad = torch.tensor([1], device="tpu"), torch.tensor([9], device="tpu")
    compiled = torch.compile(look_up)
    for _ in range(2):
        compiled(weight, good, good)
        with pytest.raises(IndexError, match=rf"embedding \({re.escape(__file__)}:{line}, in look_up\).*9"):
            compiled(weight, good, bad).cpu()
        with pytest.raises(IndexError, match=rf"embedding \({re.escape(__file__)}:{line - 1}, in look_up\).*9"):
            compiled(weight, bad, good).cpu()
    with pytest.raises(IndexError, match=r"embedding: .*9"):  # eager mode's traceback is at the call
        F.embedding(bad, weight).cpu()


def test_lines_of_a_module_and_its_backward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(4, 3)

        def forward(self, i):
            return self.table(i).sum()

    model = Model().to("tpu")
    compiled = torch.compile(model)
    compiled(torch.tensor([2], device="tpu")).backward()
    assert model.table.weight.grad.cpu()[2].tolist() == [1, 1, 1]
    with pytest.raises(IndexError, match=r"embedding \(.*:\d+, in forward\)"):
        compiled(torch.tensor([4], device="tpu")).cpu()


MINIFY = """
@torch.compile
def function(x):
    y = (x + 1).sin() * 2
    z = torch._convert_indices_from_coo_to_csr(y.long(), 4)  # of sparse tensors, which tpu has not
    return z.float().cos() - y.sum()

function(torch.ones(4, device="tpu"))
"""


def test_minifier(tmp_path):
    """A graph that fails on tpu is made small by PyTorch's minifier, whose script compiles for tpu too."""
    failed = run(MINIFY, cwd=tmp_path, check=False, TORCHDYNAMO_REPRO_AFTER="dynamo")
    assert failed.returncode != 0, failed.stderr
    (launcher,) = glob.glob(f"{tmp_path}/**/minifier_launcher.py", recursive=True)
    done = subprocess.run([sys.executable, launcher], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    scripts = glob.glob(f"{tmp_path}/**/repro.py", recursive=True)
    assert scripts, done.stdout + done.stderr
    text = open(scripts[0]).read()
    graph = text[text.index("def forward") : text.index("return", text.index("def forward"))]
    assert "_convert_indices_from_coo_to_csr" in graph, graph  # what is left fails for the same reason
    assert "backend='inductor'" in text  # as the script names plain torch.compile, which is tpu's compiler here too
