"""The TPU compiler in its process: reports, refusals, deaths. Skipped where libtpu is not installed."""

import json
import os
import subprocess
import sys
import time

import pytest

import torch
from torch import nn
from torch_tpu import cli
from torch_tpu.aot import compiler, report

aot = torch.tpu.aot
pytestmark = pytest.mark.usefixtures("libtpu")

# v5e compiles small programs fastest
CHIP = "v5e:1x1"
IDENTITY = """module {
  func.func public @main(%0: tensor<8x128xf32>) -> tensor<8x128xf32> { return %0 : tensor<8x128xf32> }
}
"""
UNBOUNDED = IDENTITY.replace("8x128", "?x128")  # libtpu aborts on it


@pytest.fixture(scope="module")
def shared():
    made = compiler.Compiler()
    yield made
    made.close()


def process_of(made: compiler.Compiler) -> int:
    return made._all[0].process.pid


def test_report_of_a_module(shared):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 128)).bfloat16()
    made = aot.compile(model, (torch.zeros(64, 256, dtype=torch.bfloat16),), topology=CHIP, compiler=shared)
    assert made.device_kind == "TPU v5 lite" and made.devices == made.partitions == made.replicas == 1
    assert made.memory.limit == 16_909_000_000
    assert made.memory.arguments >= 2 * (256 * 512 + 512 + 512 * 128 + 128 + 64 * 256)
    assert made.memory.outputs >= 2 * 64 * 128
    assert made.flops >= 2 * 64 * (256 * 512 + 512 * 128)
    assert made.roofline.compute == made.flops / 197e12
    assert made.roofline.memory == made.bytes_accessed / 819e9
    assert made.roofline.seconds > 0 and made.roofline.links == 0 and made.collectives == {}
    assert "args.input" in made.arguments and made.results == ("result",)
    assert len(made.executable) > 1000 and made.fingerprint


def test_report_prints_saves_and_becomes_json(shared, tmp_path):
    made = aot.compile(IDENTITY, topology=CHIP, compiler=shared)
    made.save(tmp_path / "executable")
    assert (tmp_path / "executable").read_bytes() == made.executable
    assert "TPU v5 lite" in str(made) and "memory a device" in str(made)
    assert json.loads(json.dumps(made.to_dict()))["memory"]["total"] == made.memory.total


def test_a_training_step_is_in_place(shared):
    model = aot.without_data(nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    made = aot.compile(step, (torch.zeros(8, 64),), topology=CHIP, state=(model, optimizer), compiler=shared)
    assert len(made.aliases) == 6
    assert made.memory.alias >= 3 * 4 * (64 * 64 + 64)


def test_processes_are_kept_and_replaced_after_a_death(shared):
    aot.compile(IDENTITY, topology=CHIP, compiler=shared)
    first = process_of(shared)
    with pytest.raises(aot.CompileError, match="custom op 'garbage' is unknown") as refused:
        aot.compile("garbage", topology=CHIP, compiler=shared)
    assert refused.value.code == 2 and process_of(shared) == first
    with pytest.raises(aot.CompileError, match=r"SIGABRT.*Check failed") as died:
        aot.compile(UNBOUNDED, topology=CHIP, compiler=shared)
    assert died.value.code == 10
    aot.compile(IDENTITY, topology=CHIP, compiler=shared)
    assert process_of(shared) != first


def test_too_large_for_the_chip(shared):
    large = IDENTITY.replace("return %0", "%1 = stablehlo.sine %0 : tensor<8x128xf32>\n    return %1")
    large = large.replace("8x128", "4194304x1024")
    with pytest.raises(aot.CompileError, match="RESOURCE_EXHAUSTED") as refused:
        aot.compile(large, topology=CHIP, compiler=shared)
    assert refused.value.code == 8
    assert refused.value.used_bytes >= 2**34 > refused.value.available_bytes > 15 * 2**30


def test_bounds_of_time_and_memory():
    slow = compiler.Compiler(timeout=0.05)
    with pytest.raises(aot.CompileError, match="more than 0\\.05 s") as late:
        slow.compile(IDENTITY, CHIP)
    assert late.value.code == 4
    small = compiler.Compiler(memory=1 << 20)
    with pytest.raises(aot.CompileError, match="GiB here") as large:
        small.compile(IDENTITY, CHIP)
    assert large.value.code == 8


def test_a_process_ends_with_its_parent(libtpu):
    code = (
        "import os, signal\n"
        "from torch_tpu.aot import compiler\n"
        "c = compiler.Compiler()\n"
        f"c.topology('{CHIP}')\n"
        "print(c._all[0].process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    process = int(child.stdout)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the compiler's process outlives its parent")


def test_unknown_topologies_are_refused(shared):
    for name in ("v9:1x1", "nonsense", ""):
        with pytest.raises(aot.CompileError):
            aot.compile(IDENTITY, topology=name, compiler=shared)
    with pytest.raises(ValueError, match="for 4 devices; v5e:1x1 has 1"):
        aot.compile(IDENTITY, topology=CHIP, partitions=4, compiler=shared)


def test_several_processes_at_once():
    from concurrent.futures import ThreadPoolExecutor

    several = compiler.Compiler(workers=2)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: several.compile(IDENTITY, CHIP), range(6)))
    assert all(answer["status"] == b"0" for answer in answers)
    assert len({worker.process.pid for worker in several._all}) == 2
    several.close()


# ---- shardings


def test_data_and_tensor_parallel_need_their_collectives(shared):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

        def forward(self, x):
            return self.down(torch.relu(self.up(x)))

    model = aot.without_data(Block().bfloat16())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()

    x = torch.zeros(64, 256, dtype=torch.bfloat16)
    training = aot.capture(step, (x,), state=(model, optimizer))
    data = aot.compile(training, topology="v5e:2x2", mesh={"data": 4}, shardings=aot.data_parallel(), compiler=shared)
    assert data.partitions == 4 and data.devices == 4
    assert data.collectives["all-reduce"].count >= 1 and data.roofline.links > 0
    forward = aot.compile(
        model,
        (x,),
        topology="v5e:2x2",
        mesh={"model": 4},
        shardings=aot.tensor_parallel(["up"], ["down"]),
        compiler=shared,
    )
    whole = aot.compile(model, (x,), topology=CHIP, compiler=shared)
    assert sum(c.count for c in forward.collectives.values()) >= 1
    assert forward.memory.arguments < 0.5 * whole.memory.arguments


# ---- the command line


def test_command_on_stablehlo(tmp_path, capsys):
    file = tmp_path / "identity.mlir"
    file.write_text(IDENTITY)
    assert cli.main(["aot", str(file), "--topology", CHIP, "--json", "--save", str(tmp_path / "out")]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    assert made["topology"] == CHIP and made["executable_bytes"] == os.path.getsize(tmp_path / "out")


def test_command_on_a_python_function(tmp_path, capsys):
    file = tmp_path / "programs.py"
    file.write_text(
        "import torch\n"
        "def double(x):\n    return x * 2\n"
        "def aot():\n    return double, (torch.zeros(8, 128),)\n"
        "def whole():\n    return {'target': double, 'args': (torch.zeros(8, 128),)}\n"
        "def wrong():\n    return 3\n"
    )
    assert cli.main(["aot", str(file), "--topology", CHIP, "--topology", CHIP]) == 0
    assert capsys.readouterr().out.count("TPU v5 lite") == 2
    assert cli.main(["aot", f"{file}:whole", "--topology", CHIP, "--program", str(tmp_path / "p.mlir")]) == 0
    assert "stablehlo.multiply" in (tmp_path / "p.mlir").read_text()
    assert cli.main(["aot", f"{file}:wrong", "--topology", CHIP]) == 2
    assert "returned int" in capsys.readouterr().err
    assert cli.main(["aot", f"{file}:missing", "--topology", CHIP]) == 2


def test_command_says_why_it_was_refused(tmp_path, capsys):
    file = tmp_path / "bad.mlir"
    file.write_text("garbage")
    assert cli.main(["aot", str(file), "--topology", CHIP]) == 1
    assert "code 2" in (error := capsys.readouterr().err) and "garbage" in error
    assert cli.main(["aot", str(tmp_path / "none.mlir"), "--topology", CHIP]) == 2


def test_chips_of_a_name():
    assert [report.chips_in(name) for name in ("v6e:1x1", "v6e:2x2", "tpu7x:2x2x4")] == [1, 4, 16]
