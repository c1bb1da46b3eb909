"""DataLoader and pinned memory; child processes by fork and by spawn."""

import pytest
from support import assert_same, assert_values, in_fresh_python
from torch.utils.data import DataLoader, TensorDataset

import torch


def dataset() -> TensorDataset:
    return TensorDataset(torch.arange(32.0).view(16, 2), torch.arange(16))


def test_pinned_memory():
    x = torch.arange(4.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned[1:].is_pinned() and torch.equal(pinned, x)
    assert torch.empty(8, pin_memory=True).is_pinned()
    assert_same(pinned.to("tpu", non_blocking=True), x)


def test_upload_reads_pinned_memory_at_the_call():
    pinned = torch.zeros(1000).pin_memory()
    uploads = []
    for i in range(10):
        pinned.fill_(i)
        uploads.append(pinned.to("tpu", non_blocking=True))
        torch.tpu.synchronize()
    for i, upload in enumerate(uploads):
        assert_values(upload, [float(i)] * 1000)


def test_pinned_device_tensor_raises():
    with pytest.raises(RuntimeError):
        torch.ones(2, device="tpu").pin_memory()


@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_loader(pin_memory, workers):
    """The device is in use before the workers are forked, and goes on being used while they run."""
    weight = torch.ones(2, device="tpu")
    total = torch.zeros((), device="tpu")
    for x, y in DataLoader(dataset(), batch_size=4, num_workers=workers, pin_memory=pin_memory):
        assert x.is_pinned() == pin_memory and y.is_pinned() == pin_memory
        total += (x.to("tpu", non_blocking=True) @ weight).sum()
    assert total.item() == sum(range(32))


def test_loader_with_spawned_workers(tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(
        """
import torch, torch_tpu
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return (torch.tensor(float(i), device="tpu") ** 2).cpu()  # each worker has a device of its own

if __name__ == "__main__":
    torch.ones(1, device="tpu").item()
    loader = DataLoader(Squares(), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
"""
    )
    out = in_fresh_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')").stdout
    assert out.strip() == "[[0.0, 1.0, 4.0, 9.0], [16.0, 25.0, 36.0, 49.0]]"


def test_device_in_forked_child_raises():
    code = """
import os, torch, torch_tpu
x = torch.ones(4, device="tpu")
x.sum().item()
child = os.fork()
if child == 0:
    try:
        torch.ones(2, device="tpu").sum().item()
        os._exit(1)
    except RuntimeError as error:
        os._exit(0 if "forked subprocess" in str(error) else 2)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), (x + 1).sum().item())
"""
    assert in_fresh_python(code).stdout.split() == ["0", "8.0"]


def test_fork_before_first_use():
    """A child forked before the device started may start it."""
    code = """
import os, torch, torch_tpu
child = os.fork()
if child == 0:
    os._exit(0 if torch.ones(2, device="tpu").sum().item() == 2 else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), torch.ones(3, device="tpu").sum().item())
"""
    assert in_fresh_python(code).stdout.split() == ["0", "3.0"]


def test_counting_devices_starts_nothing():
    """Libraries ask at import what there is; a child forked after that may use the device all the same."""
    code = """
import os, torch, torch_tpu
asked = torch.tpu.is_available(), torch.tpu.device_count(), torch.accelerator.is_available()
torch.tpu.manual_seed_all(3)
print(*asked, torch.tpu.is_initialized(), torch.accelerator.device_count())
child = os.fork()
if child == 0:
    os._exit(0 if torch.ones(2, device="tpu:3").sum().item() == 2 else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), torch.ones(3, device="tpu").sum().item(), torch.tpu.device_count())
"""
    out = in_fresh_python(code, TTPU_TOPOLOGY="v5e:2x2").stdout
    assert out.split() == ["True", "4", "True", "False", "4", "0", "3.0", "4"]


def test_bad_settings_before_the_start():
    code = """
import torch, torch_tpu
print(torch.tpu.is_available())
try:
    torch.tpu.device_count()
except RuntimeError as error:
    print(error)
"""
    out = in_fresh_python(code, TTPU_TOPOLOGY="v5e:9y9").stdout
    assert out.startswith("False\n") and "v5e:9y9" in out
    out = in_fresh_python(code, TTPU_PLUGIN="/nowhere/plugin.so").stdout
    assert out.startswith("False\n") and "/nowhere/plugin.so" in out


def test_child_frees_what_it_inherited():
    code = """
import os, torch, torch_tpu
held = [torch.ones(100, device="tpu") + i for i in range(20)]
pending = held[0] * 2
child = os.fork()
if child == 0:
    held.clear()
    del pending
    os._exit(7 if torch.tpu.is_available() else 0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), pending.sum().item())
"""
    assert in_fresh_python(code).stdout.split() == ["0", "200.0"]
