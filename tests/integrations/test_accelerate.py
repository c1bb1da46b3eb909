"""accelerate on tpu: a training loop, mixed precision, checkpoints with the device's random state, placement."""

import ast

import pytest
from support import assert_values, free_port, in_fresh_python, in_processes
from torch.utils.data import DataLoader, TensorDataset

import torch

accelerate = pytest.importorskip("accelerate")

pytestmark = pytest.mark.usefixtures("no_fallback")


def prepare(accelerator):
    """A model with dropout, its optimizer, a loader that shuffles and a schedule, prepared."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    data = DataLoader(TensorDataset(torch.randn(32, 8), torch.randn(32, 1)), batch_size=8, shuffle=True)
    return accelerator.prepare(model, optimizer, data, schedule)


def epoch(accelerator, model, optimizer, data, schedule) -> list[float]:
    losses = []
    for x, y in data:
        assert x.device == y.device and x.device.type == accelerator.device.type
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather_for_metrics(loss.detach()).mean().item())
    return losses


@pytest.mark.parametrize("mixed_precision", ["no", "bf16"])
def test_training_goes_on_from_a_checkpoint_with_the_same_numbers(mixed_precision, tmp_path):
    accelerator = accelerate.Accelerator(mixed_precision=mixed_precision, gradient_accumulation_steps=2)
    assert accelerator.device == torch.device("tpu") and accelerator.num_processes == 1
    prepared = prepare(accelerator)
    assert {p.device.type for p in prepared[0].parameters()} == {"tpu"}
    epoch(accelerator, *prepared)
    accelerator.save_state(tmp_path)
    went_on = epoch(accelerator, *prepared)
    accelerator.load_state(tmp_path)
    assert epoch(accelerator, *prepared) == went_on  # dropout drew the same numbers


@pytest.mark.parametrize("devices", [0, 3])
def test_checkpoint_of_another_number_of_devices_loads(tmp_path, devices):
    accelerator = accelerate.Accelerator()
    prepare(accelerator)
    accelerator.save_state(tmp_path)
    path = tmp_path / "random_states_0.pkl"
    states = torch.load(path, weights_only=False)
    saved = states.pop("torch_tpu_manual_seed")
    assert len(saved) == torch.tpu.device_count()
    if devices:
        states["torch_tpu_manual_seed"] = saved * devices
    torch.save(states, path)
    torch.tpu.manual_seed_all(7)
    accelerator.load_state(tmp_path)
    assert torch.equal(torch.tpu.get_rng_state(), saved[0]) == bool(devices)


def test_bf16_autocast_and_fp16_refused():
    accelerator = accelerate.Accelerator(mixed_precision="bf16")
    with accelerator.autocast():
        assert (torch.ones(2, 2, device="tpu") @ torch.ones(2, 2, device="tpu")).dtype == torch.bfloat16
    accelerate.state.AcceleratorState._reset_state()
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in"):
        accelerate.Accelerator(mixed_precision="fp16")


def test_collectives_of_one_process():
    accelerator = accelerate.Accelerator()
    x = torch.arange(3.0, device="tpu")
    for result in (accelerator.gather(x), accelerator.reduce(x), accelerator.pad_across_processes(x)):
        assert_values(result, [0.0, 1.0, 2.0])
    accelerator.wait_for_everyone()


def test_same_seed_same_numbers():
    accelerate.utils.set_seed(5)
    x = torch.rand(4, device="tpu")
    accelerate.utils.set_seed(5)
    assert torch.equal(x, torch.rand(4, device="tpu"))


def test_the_devices_memory_comes_before_the_cpus():
    from accelerate.utils import get_max_memory

    free = get_max_memory()
    assert list(free) == [*range(torch.tpu.device_count()), "cpu"]
    assert 0 < free[0] <= torch.tpu.mem_get_info()[1]
    assert get_max_memory({"cpu": "1GB", 0: "2KB"}) == {0: 2000, "cpu": 10**9}
    with pytest.raises(ValueError, match="not recognized"):
        get_max_memory({"nowhere": 1})


def test_device_that_does_not_tell_its_memory(monkeypatch):
    from accelerate.utils import get_max_memory

    def untold(device=None):
        raise RuntimeError("mem_get_info: the plugin does not tell")

    monkeypatch.setattr(torch.tpu, "mem_get_info", untold)
    with pytest.raises(RuntimeError, match=r"does not tell; say how much .*max_memory=\{0: "):
        get_max_memory()
    assert get_max_memory({0: "1KB"}) == {0: 1000}


@pytest.mark.parametrize("limit", ["5KB", "100KB"])
def test_model_split_over_tpu_and_cpu(limit):
    """Layers that do not fit stay in the CPU's memory and visit the device when they run."""
    from accelerate import dispatch_model, infer_auto_device_map

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16), torch.nn.Linear(16, 32)
    )
    x = torch.randn(2, 16)
    expected = model(x)
    placed = infer_auto_device_map(model, max_memory={0: limit, "cpu": "1GB"})
    assert set(placed.values()) == ({0, "cpu"} if limit == "5KB" else {0})
    result = dispatch_model(model, placed)(x.to("tpu"))
    torch.testing.assert_close(result.cpu(), expected)


def test_batch_size_is_lowered_until_it_fits():
    tried = []

    @accelerate.utils.find_executable_batch_size(starting_batch_size=64)
    def train(batch_size):
        tried.append(batch_size)
        if batch_size > 50:
            torch.zeros(batch_size, 2**40, device="tpu").sum().item()
        return batch_size

    assert train() <= 50
    assert tried[0] == 64 and tried == sorted(tried, reverse=True)


def test_memory_is_released():
    from accelerate.utils import release_memory

    x = torch.zeros(2**20, device="tpu") + 1
    torch.tpu.synchronize()
    x, y = release_memory(x, None)
    assert x is None and y is None


# ---- who wants another device gets it ---------------------------------------------------------------------------


def test_cpu_asked_for(monkeypatch):
    assert accelerate.Accelerator(cpu=True).device.type == "cpu"
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "1")
    assert accelerate.Accelerator().device.type == "cpu"
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    assert accelerate.Accelerator().device.type == "cpu"


def test_checkpoint_of_the_cpu(tmp_path):
    accelerator = accelerate.Accelerator(cpu=True)
    prepared = prepare(accelerator)
    accelerator.save_state(tmp_path)
    assert "torch_tpu_manual_seed" not in torch.load(tmp_path / "random_states_0.pkl", weights_only=False)
    went_on = epoch(accelerator, *prepared)
    accelerator.load_state(tmp_path)
    assert epoch(accelerator, *prepared) == went_on


def test_machine_where_tpu_is_not_the_accelerator(monkeypatch):
    monkeypatch.setattr("torch_tpu.integrations.accelerate.is_tpu_available", lambda: False)
    assert accelerate.Accelerator().device.type == "cpu"
    assert list(accelerate.utils.get_max_memory()) == ["cpu"]


def test_another_accelerator_goes_first(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert accelerate.PartialState(cpu=True).default_device == torch.device("cuda")


def test_backend_that_guides_ask_for(monkeypatch):
    testing = pytest.importorskip("accelerate.test_utils.testing")
    expected = ("tpu", torch.tpu.device_count(), torch.tpu.memory_allocated)
    assert testing.get_backend() == expected
    assert (testing.torch_device, testing.device_count, testing.memory_allocated_func) == expected
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: None)
    assert testing.get_backend()[0] == "cpu"


def test_nothing_is_imported_or_changed_without_need():
    code = """
import sys, torch
assert "accelerate" not in sys.modules and "torch_tpu.integrations.accelerate" not in sys.modules
import accelerate
print("torch_tpu.integrations.accelerate" in sys.modules, accelerate.PartialState.default_device.fget.__module__,
      accelerate.utils.get_max_memory.__code__.co_filename.count("torch_tpu"), accelerate.Accelerator().device)
"""
    assert in_fresh_python(code).stdout.split() == ["True", "accelerate.state", "1", "tpu"]
    without = code.replace("import sys, torch", "import sys, torch\nassert 'torch_tpu' not in sys.modules")
    alone = in_fresh_python(without, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split()
    assert alone == ["False", "accelerate.state", "0", "cpu"]


def test_library_that_imports_torch_itself():
    """torch loads the backend while the library's import has only begun."""
    code = """
import accelerate
print(accelerate.Accelerator().device, type(accelerate.__spec__).__name__, list(accelerate.utils.get_max_memory())[0])
"""
    assert in_fresh_python(code).stdout.split() == ["tpu", "ModuleSpec", "0"]


def test_library_imported_before_us():
    code = """
import accelerate
from accelerate.utils import get_max_memory as measure
import torch_tpu
print(accelerate.Accelerator().device, list(measure())[0])
"""
    assert in_fresh_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split() == ["tpu", "0"]


# ---- launchers ---------------------------------------------------------------------------------------------------


SCRIPT = """
import sys
import accelerate, torch
from accelerate.utils import gather_object
from test_accelerate import epoch, prepare

accelerator = accelerate.Accelerator(mixed_precision=sys.argv[1])
model, *rest = prepare(accelerator)
losses = epoch(accelerator, model, *rest)
first = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
everyone = accelerator.gather(first[None])
assert torch.equal(everyone[0], everyone[-1])
assert accelerator.reduce(torch.ones(2, device=accelerator.device)).tolist() == [accelerator.num_processes] * 2
padded = accelerator.pad_across_processes(torch.ones(accelerator.process_index + 1, device=accelerator.device))
assert padded.shape == (accelerator.num_processes,)
accelerator.save_state(sys.argv[2] + ".state")
accelerator.load_state(sys.argv[2] + ".state")
assert torch.tpu.counters()["fallbacks"] == {}
places = gather_object([f"{accelerator.device} of {accelerator.num_processes}"])
if accelerator.is_main_process:
    with open(sys.argv[2], "w") as file:
        file.write(repr((places, losses)))
accelerator.end_training()
"""


def launch(folder, processes, precision="no"):
    """What SCRIPT writes under ``accelerate launch``: the devices, and the losses."""
    options = "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"
    launcher = "accelerate.commands.accelerate_cli", "launch", *options, "--num_processes"
    out = folder / "out"
    in_processes(SCRIPT, processes, folder, precision, str(out), launcher=launcher)
    return ast.literal_eval(out.read_text())


def test_launch_of_several_processes(tmp_path):
    places, losses = launch(tmp_path, 1)
    assert places == ["tpu of 1"] and len(losses) == 4
    places, half = launch(tmp_path, 2)
    assert places == ["tpu:0 of 2", "tpu:1 of 2"] and len(half) == 2
    places, mixed = launch(tmp_path, 2, "bf16")
    assert mixed != half and mixed == pytest.approx(half, rel=0.05)


def test_launcher_of_one_process(monkeypatch):
    process = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    for name, value in process.items():
        monkeypatch.setenv(name, str(value))
    accelerator = accelerate.Accelerator()
    try:
        assert accelerator.device.type == "tpu"
        losses = epoch(accelerator, *prepare(accelerator))
        assert len(losses) == 4
    finally:
        accelerator.state.destroy_process_group()
