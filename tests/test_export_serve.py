"""examples/serve.c answers from a saved GPT: over HTTP and by lines, with the tokens that PyTorch computes."""

import os
import pathlib
import subprocess
import urllib.error
import urllib.request

import pytest

import torch
from torch import nn

TREE = pathlib.Path(torch.tpu.__file__).parents[2]
PROGRAM = TREE / "build" / "serve"
VOCABULARY = " abcdefghijklmnopqrstuvwxyz"
CONTEXT, NEW_TOKENS = 16, 8

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="the example was not built")


class GPT(nn.Module):
    """One attention layer: tokens [1, T] -> logits [1, T, V]."""

    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(len(VOCABULARY), 32), nn.Embedding(CONTEXT, 32)
        self.qkv, self.mlp = nn.Linear(32, 96), nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, len(VOCABULARY))

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        x = x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(x + self.mlp(x))


def continue_in_python(model: GPT, prompt: str) -> str:
    """The characters that the likeliest tokens are, as the example chooses them."""
    text = prompt
    for _ in range(NEW_TOKENS):
        window = text[-CONTEXT:]
        tokens = torch.tensor([[VOCABULARY.index(c) for c in window] + [0] * (CONTEXT - len(window))])
        with torch.no_grad():
            logits = model(tokens)[0, len(window) - 1]
        text += VOCABULARY[int(logits.argmax())]
    return text[len(prompt) :]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(3)
    model = GPT().eval()
    path = tmp_path_factory.mktemp("gpt") / "model"
    exported = torch.export.export(model, (torch.zeros(1, CONTEXT, dtype=torch.int64),))
    torch.tpu.export.to_stablehlo(exported, metadata={"vocabulary": VOCABULARY}).save(path)
    return model, path


@pytest.fixture
def without_python():
    """An environment in which no Python could be found."""
    return {**os.environ, "PATH": "/nowhere", "PYTHONPATH": "", "PYTHONHOME": "/nowhere"}


PROMPTS = ["the quick brown", "a", "much longer than the window of this model", "zzz"]


def test_lines(saved, without_python):
    model, path = saved
    result = subprocess.run(
        [PROGRAM, path, "--tokens", str(NEW_TOKENS)],
        input="\n".join(PROMPTS) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        env=without_python,
    )
    assert result.returncode == 0, result.stderr
    expected = [continue_in_python(model, prompt) for prompt in PROMPTS]
    assert result.stdout.splitlines() == expected
    assert len(set(expected)) > 1


def test_http(saved, without_python):
    model, path = saved
    command = [PROGRAM, path, "--tokens", str(NEW_TOKENS), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=without_python)
    try:
        url = server.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), url
        for prompt in PROMPTS:
            with urllib.request.urlopen(url, prompt.encode(), timeout=60) as response:
                assert response.read().decode() == continue_in_python(model, prompt)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("generate", "other"), b"x", timeout=60)
        with open(f"/proc/{server.pid}/maps") as maps:
            assert "python" not in maps.read() and server.poll() is None
    finally:
        server.kill()
        server.wait()


def test_errors(saved, without_python, tmp_path):
    result = subprocess.run([PROGRAM, tmp_path], capture_output=True, text=True, timeout=60, env=without_python)
    assert result.returncode == 1 and "is no saved model" in result.stderr
    other = tmp_path / "other"
    torch.tpu.export.to_stablehlo(torch.export.export(nn.ReLU(), (torch.ones(3),))).save(other)
    result = subprocess.run([PROGRAM, other], capture_output=True, text=True, timeout=60, env=without_python)
    assert result.returncode == 1 and "vocabulary" in result.stderr
