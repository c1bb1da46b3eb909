"""Several chips in one process."""

import pytest
from support import in_fresh_python

SETUP = """
import torch, torch_tpu
devices = [torch.device("tpu", i) for i in range(torch.tpu.device_count())]
"""

PROGRAMS = {
    "devices": (
        """
print(len(devices), *(torch.tpu.get_device_properties(d).coords for d in devices), torch.accelerator.device_count())
""",
        "4 (0, 0, 0) (1, 0, 0) (0, 1, 0) (1, 1, 0) 4",
    ),
    "copies": (
        """
x = torch.arange(6.0, device="tpu:1").view(2, 3)
y = x.t()[1:].to("tpu:3")
x.add_(1)
z = torch.empty(2, 2, device="tpu:2", dtype=torch.int64)
z.copy_(y)
print(y.device, y.tolist(), z.tolist(), y.to("tpu:3") is y)
""",
        "tpu:3 [[1.0, 4.0], [2.0, 5.0]] [[1, 4], [2, 5]] True",
    ),
    "copies of pending results": (
        """
x = torch.ones(4, device="tpu:0")
for i in (1, 2, 3, 0):
    x = (x * 2 + 1).to(devices[i])
print(x.device, x.tolist())
""",
        "tpu:0 [31.0, 31.0, 31.0, 31.0]",
    ),
    "current device": (
        """
with torch.tpu.device(2):
    x = torch.ones(2, device="tpu")
    with torch.accelerator.device_index(1):
        y = torch.ones(2, device="tpu")
torch.tpu.set_device(3)
print(x.device, y.device, torch.ones(1, device="tpu").device, torch.tpu.current_device())
""",
        "tpu:2 tpu:1 tpu:3 3",
    ),
    "mixing raises": (
        """
try:
    torch.ones(2, device="tpu:0") + torch.ones(2, device="tpu:1")
except RuntimeError as error:
    print("same device" in str(error), "tpu:1" in str(error))
""",
        "True True",
    ),
    "memory is each chip's own": (
        """
x = torch.ones(1 << 20, device="tpu:2")
torch.tpu.synchronize(2)
print([torch.tpu.memory_allocated(d) >> 20 for d in devices])
""",
        "[0, 0, 4, 0]",
    ),
    "random numbers are the same on each": (
        """
torch.manual_seed(5)
draws = [torch.randn(100, device=d).cpu() for d in devices]
print(all(torch.equal(draw, draws[0]) for draw in draws), torch.equal(torch.randn(100, device="tpu:1").cpu(), draws[1]))
torch.tpu.manual_seed_all(7)
print([g.initial_seed() for g in torch.tpu.default_generators])
""",
        "True False [7, 7, 7, 7]",
    ),
    "streams and events": (
        """
start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
with torch.tpu.device(1):
    stream = torch.tpu.Stream()
    start.record()
    with torch.tpu.stream(stream):
        y = torch.ones(64, 64, device="tpu") @ torch.ones(64, 64, device="tpu")
    end.record()
end.synchronize()
print(stream.device, start.elapsed_time(end) >= 0, y.device, y[0, 0].item())
""",
        "tpu:1 True tpu:1 64.0",
    ),
    "threads": (
        """
import threading
results = {}
def run(d):
    x = torch.full((32,), float(d.index), device=d)
    for _ in range(100):
        x = x * 1 + 1
    results[d.index] = x.sum().item()
threads = [threading.Thread(target=run, args=(d,)) for d in devices]
[t.start() for t in threads], [t.join() for t in threads]
print([results[i] for i in range(4)])
""",
        "[3200.0, 3232.0, 3264.0, 3296.0]",
    ),
    "data parallel by hand": (
        """
torch.manual_seed(0)
model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
model(x).square().mean().backward()
expected = model.weight.grad.clone()
total = 0
import copy
for d, part in zip(devices, x.chunk(4)):
    replica = copy.deepcopy(model).to(d)
    replica.zero_grad()
    replica(part.to(d)).square().mean().backward()
    total = total + replica.weight.grad.to("tpu:0") / 4
print(torch.allclose(total.cpu(), expected, atol=1e-6))
""",
        "True",
    ),
    "a missing device": (
        """
for use in (lambda: torch.ones(1, device="tpu:4"), lambda: torch.tpu.set_device(4)):
    try:
        use()
    except RuntimeError as error:
        print("tpu:4" in str(error))
""",
        "True True",
    ),
}


@pytest.mark.parametrize("program,expected", PROGRAMS.values(), ids=PROGRAMS)
def test_four_chips(program, expected):
    out = in_fresh_python(SETUP + program, TTPU_TOPOLOGY="v5e:2x2").stdout
    assert " ".join(out.split()) == expected


@pytest.mark.parametrize("topology,count,kind", [("v5e:1x1", 1, "v5"), ("v6e:2x4", 8, "v6"), ("tpu7x:2x2x1", 8, "7x")])
def test_topologies(topology, count, kind):
    code = "import torch, torch_tpu; print(torch.tpu.device_count(), torch.tpu.get_device_name())"
    devices, name = in_fresh_python(code, TTPU_TOPOLOGY=topology).stdout.strip().split(" ", 1)
    assert int(devices) == count and kind in name.lower()


def test_default_is_one_chip():
    assert in_fresh_python("import torch, torch_tpu; print(torch.tpu.device_count())", TTPU_TOPOLOGY="").stdout == "1\n"
