"""Capturing Python code as one program: its arguments, results and aliases; nothing runs and nothing stays changed.

What the programs compute is shown by running their text through a second client: the TPU compiler only compiles."""

import pytest

import torch
from torch import nn

aot = torch.tpu.aot


def names(values) -> list[str]:
    return [value.name for value in values]


def linear_step(device="tpu"):
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def test_a_module_keeps_its_own_parameters():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    before = [p.clone() for p in model.parameters()]
    program = aot.capture(model, (torch.zeros(5, 4),))
    assert names(program.arguments)[:5] == ["0.weight", "0.bias", "2.weight", "2.bias", "args.input"]
    assert program.arguments[0].dims == (8, 4) and program.arguments[4].dims == (5, 4)
    assert names(program.results) == ["result"] and program.results[0].dims == (5, 2)
    assert program.aliases == {}
    assert all(torch.equal(a, b) and a.device.type == "cpu" for a, b in zip(model.parameters(), before, strict=True))
    text = program.text()
    assert text.count("stablehlo.dot_general") == 2 and "ttpu." not in text


def test_a_module_without_data():
    with torch.device("meta"):
        model = nn.Linear(1 << 20, 1 << 16)  # 256 GiB
        x = torch.zeros(1, 1 << 20)
    program = aot.capture(model, (x,))
    assert program.arguments[0].dims == (1 << 16, 1 << 20)


def test_more_operators_than_a_piece_has():
    def chain(x):
        for i in range(1000):
            x = x + i
        return x

    torch.tpu.reset_counters()
    program = aot.capture(chain, (torch.zeros(3),))
    assert program.operators == 1000
    assert program.text().count("stablehlo.add") == 1000
    assert torch.tpu.counters()["programs_built"] == 0


def test_a_training_step_updates_in_place():
    model, optimizer, step = linear_step()
    before = [p.detach().cpu().clone() for p in model.parameters()]
    program = aot.capture(step, (torch.zeros(5, 4), torch.zeros(5, 3)), state=(model, optimizer))
    assert names(program.arguments)[:8] == [
        "weight",
        "bias",
        "exp_avg.weight",
        "exp_avg_sq.weight",
        "exp_avg.bias",
        "exp_avg_sq.bias",
        "args.x",
        "args.y",
    ]
    assert set(program.aliases) == {0, 1, 2, 3, 4, 5}
    for argument, result in program.aliases.items():
        assert program.results[result].dims == program.arguments[argument].dims
        assert f"tf.aliasing_output = {result} : i32" in program.text()
    assert program.results[0].name == "result" and program.results[0].dims == ()
    # nothing stays of it
    assert all(torch.equal(a.cpu(), b) for a, b in zip(model.parameters(), before, strict=True))
    assert all(p.grad is None for p in model.parameters()) and len(optimizer.state) == 0


def test_the_step_works_afterwards():
    torch.manual_seed(0)
    model, optimizer, step = linear_step()
    torch.manual_seed(0)
    _, _, step_on_cpu = linear_step("cpu")
    x, y = torch.randn(5, 4), torch.randn(5, 3)
    expected = [step_on_cpu(x, y).item() for _ in range(3)]
    on_tpu = [x.to("tpu"), y.to("tpu")]
    losses = [step(*on_tpu).item()]
    aot.capture(step, (x, y), state=(model, optimizer))
    losses += [step(*on_tpu).item() for _ in range(2)]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected))


def test_what_is_read_besides_is_an_argument():
    outside = torch.randn(3, device="tpu")
    program = aot.capture(lambda x: x + outside, (torch.zeros(3),))
    assert names(program.arguments) == ["args.x", "constant.1"]


def test_a_write_to_an_outside_tensor_is_a_result_and_is_undone():
    counter = torch.zeros(2, device="tpu")

    def count(x):
        counter.add_(x)

    program = aot.capture(count, (torch.ones(2),))
    assert program.aliases == {1: 0} and len(program.results) == 1
    assert counter.tolist() == [0, 0]


def test_random_numbers_are_as_if_nothing_was_captured():
    torch.manual_seed(1)
    expected = torch.rand(4, device="tpu")
    torch.manual_seed(1)
    program = aot.capture(lambda x: nn.functional.dropout(x), (torch.zeros(100),))
    assert [v.name for v in program.arguments if v.name.startswith("numbers")] != []
    assert torch.equal(torch.rand(4, device="tpu"), expected)


def test_nested_arguments_and_results():
    def f(batch, *, scale):
        return {"sum": batch["a"] + batch["b"][0], "scaled": [batch["a"] * scale]}

    x = torch.zeros(2)
    program = aot.capture(f, ({"a": x, "b": [x]},), {"scale": 2.0})
    assert names(program.arguments)[:2] == ["args.batch.a", "args.batch.b.0"]
    assert names(program.results) == ["result.sum", "result.scaled.0"]


def test_an_exported_program():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x) + torch.arange(4, device=x.device)

    exported = torch.export.export(Positions(), (torch.zeros(2, 4),))
    program = aot.capture(exported, (torch.zeros(2, 4),))
    assert "linear.weight" in names(program.arguments)
    assert "stablehlo.iota" in program.text()


def test_tied_parameters_are_one_argument():
    model = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
    model["b"].weight = model["a"].weight

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return self.parts["b"](self.parts["a"](x))

    program = aot.capture(Both(), (torch.zeros(2, 3),))
    assert names(program.arguments) == ["parts.a.weight", "args.x"]
    tied = aot.without_data(Both())
    assert tied.parts["a"].weight is tied.parts["b"].weight


# ---- errors


@pytest.mark.parametrize(
    "read", [lambda x: x.sum().item(), lambda x: x.cpu(), lambda x: x if x.sum() > 0 else -x, lambda x: x.nonzero()]
)
def test_reading_a_value_is_an_error_at_the_call(read):
    with pytest.raises(RuntimeError, match="captur"):
        aot.capture(read, (torch.ones(3),))
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]  # and the device works on


def test_captures_do_not_nest():
    def inner(x):
        return aot.capture(lambda y: y + 1, (torch.zeros(2),))

    with pytest.raises(RuntimeError, match="already being captured"):
        aot.capture(inner, (torch.ones(2),))


def test_a_tensor_without_data_cannot_be_read():
    model = aot.without_data(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="no data"):
        model.weight.cpu()


def test_state_must_be_on_tpu():
    model, optimizer, step = linear_step("cpu")
    with pytest.raises(ValueError, match=r"weight is on cpu.*without_data"):
        aot.capture(step, (torch.zeros(5, 4), torch.zeros(5, 3)), state=(model, optimizer))


def test_the_functions_own_error_is_raised():
    with pytest.raises(RuntimeError, match="must match"):
        aot.capture(lambda x, y: x + y, (torch.zeros(2), torch.zeros(3)))


# ---- shardings


@pytest.mark.parametrize(
    ("dims", "sharding", "mesh", "expected"),
    [
        ((8, 4), ("data",), {"data": 4}, "{devices=[4,1]<=[4]}"),
        ((8, 4), (None, "model"), {"data": 2, "model": 2}, "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"),
        ((8, 4), ("data",), {"data": 2, "model": 2}, "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"),
        ((8, 4), ("model", "data"), {"data": 2, "model": 2}, "{devices=[2,2]<=[2,2]T(1,0)}"),
        ((8, 4), (("data", "model"),), {"data": 2, "model": 2}, "{devices=[4,1]<=[4]}"),
        ((8, 4), (), {"data": 4}, "{replicated}"),
        ((), ("data",), {"data": 4}, "{replicated}"),
    ],
)
def test_annotations(dims, sharding, mesh, expected):
    assert aot.sharding.annotation("x", dims, sharding, mesh) == expected


@pytest.mark.parametrize(
    ("dims", "sharding", "message"),
    [
        ((6,), ("data",), "dimension 0 of size 6 is not divisible over 4"),
        ((8,), ("other",), "names 'other'"),
        ((8, 8), ("data", "data"), "twice"),
        ((8,), (None, "data"), "has 1 dimensions"),
    ],
)
def test_bad_shardings(dims, sharding, message):
    with pytest.raises(ValueError, match=message):
        aot.sharding.annotation("x", dims, sharding, {"data": 4})


def test_updated_state_keeps_its_sharding():
    model, optimizer, step = linear_step()
    program = aot.capture(step, (torch.zeros(8, 4), torch.zeros(8, 3)), state=(model, optimizer))
    text = program.text({"data": 2}, {"args.*": ("data",), "*weight": (None, "data")})
    head = text[: text.index("stablehlo")]
    assert head.count("{devices=[2,1]<=[2]}") == 2  # the two inputs
    assert head.count("{devices=[1,2]<=[2]}") == 6  # the weight and its two averages, before and after
    assert "mhlo.num_partitions = 2" in head
