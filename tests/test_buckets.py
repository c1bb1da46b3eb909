"""Sizes in buckets (TTPU_BUCKETS=always): the numbers that the CPU gives, and few programs for many sizes."""

import json

import pytest
from support import in_fresh_python

TRAINING = """
import json, torch
from torch import nn
from torch.nn import functional as F

class Transformer(nn.Module):
    def __init__(self, vocabulary=64, width=32, heads=4, longest=64):
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
    def forward(self, ids):
        n, length = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(length, device=ids.device))
        q, k, v = (t.view(n, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return self.head(x + self.down(F.gelu(self.up(self.after(x)))))

def train(lengths, device):
    torch.manual_seed(0)
    model = Transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for length in lengths:
        ids = torch.randint(64, (3, length + 1), generator=torch.Generator().manual_seed(length))
        inputs, targets = ids[:, :-1].to(device), ids[:, 1:].contiguous()
        targets[0, length // 2:] = -100
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten()) + logits.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

lengths = range(20, 40)
print(json.dumps({"tpu": train(lengths, "tpu"), "cpu": train(lengths, "cpu"), **torch.tpu.counters()}))
"""

GENERATION = """
import torch
from torch.nn import functional as F

def generate(device):
    torch.manual_seed(1)
    w = torch.randn(8, 24).to(device)
    keys = values = torch.zeros(2, 0, 8, device=device)
    x, seen = torch.ones(2, 1, 8, device=device), []
    for _ in range(30):
        q, k, v = (x @ w).chunk(3, -1)
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        x = F.scaled_dot_product_attention(q, keys, values)[:, -1:] + 0.5
        seen.append(x.sum().item())
    return seen + keys.cumsum(1)[:, -1].flatten().tolist() + values.flip(1)[0, :3].flatten().tolist()

torch.testing.assert_close(generate("tpu"), generate("cpu"), rtol=1e-4, atol=1e-5)
assert torch.tpu.counters()["programs_bucketed"] > 20
"""

GRAPH = """
import torch

def f(x, w):
    y = torch.softmax(x @ w, -1)
    return y, y.mean(), x.sum(1), (x * 2).transpose(0, 1).contiguous()

compiled = torch.compile(f, dynamic=False)
w = torch.randn(5, 7)
for length in range(5, 11):
    x = torch.randn(2, length, 5)
    for _ in range(2):
        results = compiled(x.to("tpu"), w.to("tpu"))
    for result, expected in zip(results, f(x, w)):
        torch.testing.assert_close(result.cpu(), expected)
    # read whole and cut on the host; read by a program of its own
    assert torch.equal(results[0].cpu()[:, 1:3], results[0][:, 1:3].cpu())
    assert torch.equal(results[0].cpu(), results[0].clone().cpu())
    # cut by a program of its own: an FFT along it has no rule, another device takes it as it is
    torch.testing.assert_close(torch.fft.fft(results[0], dim=1).cpu(), torch.fft.fft(results[0].cpu(), dim=1))
    assert torch.equal(results[0].to("tpu:1").cpu(), results[0].cpu())
assert torch.tpu.counters()["programs_bucketed"] >= 6
"""

CHECKS = """
import pytest, torch

table = torch.randn(9, 4, device="tpu")
for length in range(3, 12):
    ids = torch.arange(length) % 9
    assert torch.equal(table[ids.to("tpu")].cpu(), table.cpu()[ids])
ids[7] = 9
with pytest.raises(IndexError, match=r"index 9 is out of range \\["):
    table[ids.to("tpu")].cpu()
assert torch.tpu.counters()["programs_bucketed"] > 8
"""


def test_transformer_of_twenty_lengths():
    """Training in eager mode; spoken to without our extension, every program that the plugin compiles is counted."""
    done = in_fresh_python(TRAINING, TTPU_BUCKETS="always", TTPU_EXTENSION="off", TTPU_CACHE="off")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["tpu"] == pytest.approx(found["cpu"], rel=1e-4)
    assert found["programs_built"] >= 80 and found["programs_bucketed"] == found["programs_built"]
    # the sizes of the model are buckets themselves: what is compiled is three buckets of a few pieces
    assert found["programs_compiled"] <= 20


def test_growing_cache_graphs_and_checks():
    """Keys and values that grow by concatenation; torch.compile; padding is no bad index, and a bad one is found."""
    in_fresh_python(GENERATION + GRAPH + CHECKS, TTPU_BUCKETS="always", TTPU_TOPOLOGY="v5e:1x2")


def test_wrong_setting_is_named():
    done = in_fresh_python("import torch; torch.ones(3, device='tpu').sum().item()", TTPU_BUCKETS="on")
    assert "TTPU_BUCKETS=on is none of off, auto and always" in done.stderr
