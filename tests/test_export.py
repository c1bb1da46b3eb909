"""torch.tpu.export: exported programs as StableHLO, saved, loaded and run, here and by `ttpu run`."""

import json
import os
import pathlib
import subprocess

import numpy
import pytest
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import load_file

import torch
from torch import nn

LIB = pathlib.Path(torch.tpu.__file__).parents[1] / "lib"


def export(model: nn.Module, args: tuple, kwargs: dict | None = None, **options):
    return torch.tpu.export.to_stablehlo(torch.export.export(model, args, kwargs, **options))


def names(values: list[dict]) -> list[str]:
    return [value["name"] for value in values]


def run_command(*arguments, **environment) -> subprocess.CompletedProcess:
    """`ttpu run`, the program itself: no Python is in it."""
    command = [str(LIB / "ttpu-run"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


class Everything(nn.Module):
    """Parameters, buffers of each kind, constants, nested inputs and outputs, state and views."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("hidden", torch.full((4,), 0.5), persistent=False)
        self.constant = torch.arange(4.0)

    def forward(self, x, *, extra, power=2):
        self.count.add_(1)
        y = self.norm(self.linear(x)) + extra["a"] + self.constant + torch.tensor([1.0, 2, 3, 4]) + self.hidden
        return {"y": y**power, "parts": [y.t(), power, y[0], self.count * 1]}


def test_everything(tmp_path):
    torch.manual_seed(0)
    model, x, a = Everything(), torch.randn(3, 4), torch.randn(4)
    exported = torch.export.export(model, (x,), {"extra": {"a": a}})
    saved = torch.tpu.export.to_stablehlo(exported, metadata={"author": "nobody"})
    decomposed = torch.tpu.export.to_stablehlo(exported.run_decompositions())  # writes are results of the graph there
    assert decomposed(x, a)["parts.3"].item() == 1 and decomposed(x, a)["parts.3"].item() == 2
    assert names(saved.inputs) == ["x", "extra_a"]
    assert names(saved.outputs) == ["y", "parts.0", "parts.2", "parts.3"]
    states = [v["name"] for v in saved.manifest["arguments"] if v["role"] == "state"]
    assert set(states) == {"count", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert {"linear.weight", "hidden", "constant", "norm.running_var"} <= saved.weights.keys()
    assert saved.manifest["constants"] == {"parts.1": 2}
    saved.save(tmp_path / "model")
    assert torch.equal(load_file(tmp_path / "model" / "weights.safetensors")["linear.weight"], model.linear.weight)
    loaded = torch.tpu.export.load(tmp_path / "model")
    assert loaded.manifest["metadata"] == {"author": "nobody"} and loaded.bytecode[:4] == b"ML\xefR"
    for _ in range(3):  # the state goes on, in the model and in what was saved
        expected = model(x, extra={"a": a})
        actual = loaded(x, extra_a=a)
        assert actual["y"].device.type == "cpu" and actual["parts.0"].shape == (4, 3)
        torch.testing.assert_close(actual["y"], expected["y"])
        torch.testing.assert_close(actual["parts.0"], expected["parts"][0])
        torch.testing.assert_close(actual["parts.2"], expected["parts"][2])
        torch.testing.assert_close(actual["parts.3"], expected["parts"][3])
    loaded.reset()
    assert loaded(x, extra_a=a)["parts.3"].item() == 1
    on_tpu = loaded(x.to("tpu"), a.to("tpu"))
    assert on_tpu["y"].device.type == "tpu" and on_tpu["parts.3"].item() == 2


def test_the_program_is_read_by_our_own_reader():
    from torch_tpu import _C

    saved = export(nn.Sequential(nn.Linear(4, 4), nn.GELU()), (torch.zeros(2, 4),))
    assert "stablehlo.dot_general" in saved.text and saved.text.count("tensor<4x4xf32>") >= 1
    assert _C.read_stablehlo(saved.text, "main", 0)["stage"] == "passed"
    assert "tensor<0x" not in saved.text


def test_nothing_is_computed_and_nothing_stays():
    x, model = torch.ones(2, 4, device="tpu"), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to("tpu")
    exported = torch.export.export(model, (x,))
    torch.manual_seed(5)
    expected = torch.rand(3, device="tpu").cpu()
    torch.manual_seed(5)
    torch.tpu.synchronize()
    torch.tpu.reset_counters()
    torch.tpu.export.to_stablehlo(exported)
    assert torch.tpu.counters()["programs_run"] == 0
    assert torch.equal(torch.rand(3, device="tpu").cpu(), expected)


def test_random_numbers_go_on_and_begin_again_with_a_seed():
    class Draws(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x, 0.5), torch.randn_like(x)

    saved, x = export(Draws(), (torch.ones(1000),)), torch.ones(1000)
    first, second = saved(x), saved(x)
    assert 400 < int((first["output.0"] == 0).sum()) < 600
    assert not torch.equal(first["output.0"], second["output.0"])
    assert abs(float(first["output.1"].mean())) < 0.2 and not torch.equal(first["output.1"], second["output.1"])
    saved.manual_seed(0)
    again = saved(x)
    assert all(torch.equal(again[name], first[name]) for name in first)
    saved.manual_seed(1)
    assert not torch.equal(saved(x)["output.0"], first["output.0"])
    torch.manual_seed(0)  # they are those of eager mode
    torch.testing.assert_close(nn.functional.dropout(x.to("tpu"), 0.5).cpu(), first["output.0"])


def test_sizes_that_were_open_become_those_of_the_example():
    batch = torch.export.Dim("batch", min=2, max=64)
    model = nn.Linear(4, 2)
    exported = torch.export.export(model, (torch.zeros(3, 4),), dynamic_shapes=({0: batch},))
    by_default = torch.tpu.export.to_stablehlo(exported)
    assert by_default.inputs[0]["shape"] == [3, 4] and by_default.manifest["specialized"] == {"input": [0]}
    larger = torch.tpu.export.to_stablehlo(exported, (torch.zeros(7, 4),))
    x = torch.randn(7, 4)
    torch.testing.assert_close(larger(x)["output"], model(x).detach())
    with pytest.raises(ValueError, match=r"float32\[7, 4\].*exported for float32\[3, 4\]"):
        by_default(x)
    with pytest.raises(RuntimeError, match="64"):
        torch.tpu.export.to_stablehlo(exported, (torch.zeros(65, 4),))


def test_strides_and_writes_of_inputs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

        def forward(self, x, counter):
            counter.add_(1)
            return self.conv(x), counter.sum(), x

    model, x = Model(), torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    saved = export(model, (x, torch.zeros(2)))
    expected = model(x, torch.zeros(2))
    actual = saved(x, torch.zeros(2))
    torch.testing.assert_close(actual["output.0"], expected[0].detach().contiguous())
    assert actual["output.1"].item() == 2 and torch.equal(actual["output.2"], x)
    assert actual["counter"].tolist() == [1, 1]  # the input that it writes


def test_tied_weights_are_saved_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    model, tokens = Tied(), torch.tensor([1, 4])
    saved = export(model, (tokens,))
    assert len(saved.weights) == 1
    torch.testing.assert_close(saved(tokens)["output"], model(tokens).detach())
    with pytest.raises(IndexError, match="embedding"):  # the program's own check
        saved(torch.tensor([1, 5]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32, torch.bool, torch.complex64])
def test_dtypes(dtype, tmp_path):
    class Model(nn.Module):
        def forward(self, x):
            return x if x.dtype == torch.bool else x + x

    x = torch.tensor([[1, 0, 3]]).to(dtype)
    saved = export(Model(), (x,))
    saved.save(tmp_path / "m")
    out = tmp_path / "out.safetensors"
    actual = saved(x)["output"]
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, Model()(x))
    from safetensors.torch import save_file

    save_file({"x": x}, tmp_path / "x.safetensors")
    result = run_command(tmp_path / "m", "--input", tmp_path / "x.safetensors", "--output", out)
    assert result.returncode == 0, result.stderr
    torch.testing.assert_close(load_file(out)["output"], actual)


def test_no_elements_and_no_inputs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.steps += 1
            return x.sum(), x.reshape(0, 5)

    saved = export(Model(), (torch.zeros(0, 3),))
    actual = saved(torch.zeros(0, 3))
    assert actual["output.0"].item() == 0 and actual["output.1"].shape == (0, 5)

    class Constant(nn.Module):
        def forward(self):
            return torch.arange(3) * 2

    assert export(Constant(), ())()["output"].tolist() == [0, 2, 4]


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved linear layer of known numbers."""
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2, 3], [4, 5, 6]]))
        model.bias.copy_(torch.tensor([0.5, -0.5]))
    path = tmp_path_factory.mktemp("saved") / "linear"
    export(model, (torch.zeros(2, 3),)).save(path)
    return path


def test_command(folder, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.array([[1, 0, 0], [0, 1, 1]], dtype=numpy.float32))
    result = run_command(folder, "--input", f"input={tmp_path / 'x.npy'}", "--output", tmp_path / "out", "--repeat", 2)
    assert result.returncode == 0, result.stderr
    assert "output output float32[2, 2]" in result.stdout
    assert numpy.load(tmp_path / "out" / "output.npy").tolist() == [[1.5, 3.5], [5.5, 10.5]]
    described = run_command(folder, "--describe").stdout.splitlines()
    assert described == ["input  input float32[2, 3]", "output output float32[2, 2]"]


def test_command_through_ttpu(folder):
    from support import in_fresh_python

    out = in_fresh_python(f"from torch_tpu.cli import main; main(['run', {str(folder)!r}, '--describe'])").stdout
    assert "float32[2, 3]" in out


def given(tmp_path, name: str, array: numpy.ndarray) -> str:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
    numpy.save(path, array)
    return f"{name}={path}"


def test_command_errors(folder, tmp_path):
    good = given(tmp_path, "input", numpy.zeros((2, 3), dtype=numpy.float32))
    cases = [
        (["--input", given(tmp_path, "x", numpy.zeros(3))], 'no input "x"; its inputs are: "input" float32[2, 3]'),
        ([], 'the input "input" is missing: float32[2, 3]'),
        (["--input", good, "--input", good], "given twice"),
        (["--input", given(tmp_path, "input", numpy.zeros((2, 3)))], "is float64[2, 3]; the model was exported for"),
        (
            ["--input", given(tmp_path, "input", numpy.zeros((3, 2), dtype=numpy.float32))],
            "is float32[3, 2]; the model",
        ),
        (["--input", given(tmp_path, "input", numpy.zeros((2, 3), dtype="datetime64[s]"))], "its type is none of"),
        (["--input", given(tmp_path, "input", numpy.asfortranarray(numpy.zeros((2, 3))))], "Fortran's order"),
        (["--input", "input=/no/such/file.npy"], "NOT_FOUND: /no/such/file.npy cannot be opened"),
        (["--input", "input"], "expected NAME=FILE"),
        (["--input", good, "--device", "7"], "there is no device 7: the runtime has 1"),
        (["--input", good, "--plugin", "/no/plugin.so"], "/no/plugin.so"),
    ]
    for arguments, message in cases:
        result = run_command(folder, *arguments)
        assert result.returncode == 1 and message in result.stderr, (arguments, result.stderr)
    for arguments in (["--no-such-option"], ["--repeat", "x"], ["another"]):
        assert run_command(folder, *arguments).returncode == 2
    assert "is no saved model" in run_command(tmp_path).stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=2), "version is not 1"),
        (lambda m: m.update(program="../x"), "no name of a file"),
        (lambda m: m["arguments"][0].update(shape=[7]), "another type than in the program"),
        (lambda m: m["arguments"][0].update(dtype="float7"), "no dtype that is known: float7"),
        (lambda m: m["arguments"][0].update(role="friend"), "no role that is known"),
        (lambda m: m["arguments"][0].update(name="other"), "no tensor other"),
        (lambda m: m["arguments"].pop(), "2 arguments and 1 results, the program 3 and 1"),
        (lambda m: m["results"][0].update(role="state"), "next value of no state"),
    ],
)
def test_damaged_manifests(folder, tmp_path, change, message):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    result = run_command(copy, "--describe")
    assert result.returncode == 1 and message in result.stderr, result.stderr


@pytest.mark.parametrize("name", ["manifest.json", "program.mlirbc", "weights.safetensors"])
def test_damaged_files(folder, tmp_path, name):
    """Cut, and with bytes changed: always a message, never a crash."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    content = (folder / name).read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 2):
        (copy / name).write_bytes(content[:length])
        result = run_command(copy, "--describe")
        assert result.returncode == 1 and "ttpu run: " in result.stderr, (name, length, result)
    generator = numpy.random.default_rng(0)
    for _ in range(10):
        changed = bytearray(content)
        changed[int(generator.integers(0, min(len(content), 300)))] ^= int(generator.integers(1, 256))
        (copy / name).write_bytes(changed)
        assert run_command(copy, "--describe").returncode in (0, 1)


def test_safetensors_of_another_writer(folder, tmp_path):
    save_numpy({"input": numpy.ones((2, 3), dtype=numpy.float32)}, tmp_path / "x.safetensors")
    out = tmp_path / "o.safetensors"
    result = run_command(folder, "--input", f"input={tmp_path / 'x.safetensors'}", "--output", out)
    assert result.returncode == 0, result.stderr
    assert load_file(out)["output"].tolist() == [[6.5, 14.5]] * 2


# ---- what cannot be exported -----------------------------------------------------------------------------------------


def test_errors_of_exporting(tmp_path):
    with pytest.raises(TypeError, match=r"got Linear: call torch.export.export first"):
        torch.tpu.export.to_stablehlo(nn.Linear(2, 2))
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="weight has no data"):
        export(model, (torch.zeros(1, 2, device="meta"),))

    class Reads(nn.Module):
        def forward(self, x):
            return x.nonzero()

    with pytest.raises(RuntimeError, match="captur"):
        export(Reads(), (torch.ones(3),))
    with pytest.raises(TypeError, match="metadata"):
        torch.tpu.export.to_stablehlo(torch.export.export(nn.ReLU(), (torch.ones(3),)), metadata={"a": 1})
    saved = export(nn.ReLU(), (torch.ones(3),))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(FileExistsError, match="something else"):
        saved.save(tmp_path / "mine")
    with pytest.raises(FileNotFoundError, match=r"no manifest\.json"):
        torch.tpu.export.load(tmp_path)
    with pytest.raises(TypeError, match="2 inputs were given; the model has 1: input"):
        saved(torch.ones(3), torch.ones(3))
    with pytest.raises(ValueError, match='no input "y"'):
        saved(y=torch.ones(3))
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]


def test_control_flow_and_attention():
    class Model(nn.Module):
        def forward(self, q, k, v):
            attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return torch.cond(attended.sum() > 0, lambda x: x.sin(), lambda x: x * 2, (attended,))

    inputs = tuple(torch.randn(1, 2, 8, 16) for _ in range(3))
    saved = export(Model(), inputs)
    torch.testing.assert_close(saved(*inputs)["output"], Model()(*inputs))


def test_loops():
    from torch._higher_order_ops.associative_scan import associative_scan
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    class Scans(nn.Module):
        def forward(self, x):
            def step(carry, row):
                i, total = carry
                total = torch.cond(i % 2 == 0, lambda a, b: a + b, lambda a, b: a * b, (total, row))
                return (i + 1, total + 1), total * row

            start = torch.zeros((), dtype=torch.int64), torch.zeros(3)
            (_, total), products = scan(step, start, x, reverse=True)
            return total, products, associative_scan(torch.add, x, dim=0, combine_mode="generic")

    class Loop(nn.Module):
        def __init__(self, noise):
            super().__init__()
            self.noise = noise

        def forward(self, x):
            start = torch.zeros((), dtype=torch.int64)

            def body(i, x):
                return i + 1, (
                    nn.functional.dropout(x) if self.noise else torch.cond(i % 2 == 0, torch.sin, torch.cos, (x,))
                )

            return while_loop(lambda i, x: (i < 50) & (x.sum() > -1e3), body, (start, x))

    x = torch.randn(6, 3)
    scans = export(Scans(), (x,))
    assert scans.text.count("stablehlo.while") == scans.text.count("stablehlo.if") == 1
    found = scans(x)
    for i, expected in enumerate(Scans()(x)):
        torch.testing.assert_close(found[f"output.{i}"], expected)
    loop = export(Loop(noise=False), (x,))
    for start in (x, x - 1000):  # fifty rounds, and none
        rounds, end = Loop(noise=False)(start)
        found = loop(start)
        assert int(found["output.0"]) == int(rounds)
        torch.testing.assert_close(found["output.1"], end)
    with pytest.raises(RuntimeError, match=r"while_loop that has no form ahead of time: .*draws random numbers"):
        export(Loop(noise=True), (x,))
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]
