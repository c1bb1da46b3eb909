"""What cannot be loaded says so in one clear sentence."""

import pathlib

from support import in_fresh_python

import torch

IMPORT = "import torch_tpu; torch_tpu.load(); print('loaded')"


def last_line(code: str) -> str:
    out = in_fresh_python(code, check=False, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert out.returncode == 1 and "loaded" not in out.stdout
    return out.stderr.strip().splitlines()[-1]


def test_another_distribution_of_the_same_name(tmp_path):
    for name in ("torch-tpu", "torch_tpu"):
        folder = tmp_path / name / "torch_tpu-0.9.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n")
        message = last_line(f"import sys; sys.path.insert(0, {str(folder.parent)!r})\n{IMPORT}")
        assert message.startswith("ImportError: the distribution torch")
        assert "0.9 also provides the package torch_tpu" in message and f"pip uninstall {name}" in message


def test_another_minor_release_of_pytorch():
    message = last_line(f"import torch; torch.__version__ = '2.99.0'\n{IMPORT}")
    built = ".".join(torch.__version__.split(".")[:2])
    assert message.startswith(f"ImportError: torch_tpu was built for PyTorch {built} but this is 2.99.0")
    assert "make build" in message


def test_another_patch_release_of_pytorch():
    major, minor = torch.__version__.split(".")[:2]
    code = f"import torch; torch.__version__ = '{major}.{minor}.99+cpu'\n{IMPORT}"
    assert in_fresh_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout == "loaded\n"


def test_extension_that_does_not_load(tmp_path):
    """A broken extension, as after an upgrade of PyTorch's libraries: the loader's words come along."""
    import torch_tpu

    package = tmp_path / "torch_tpu"
    package.mkdir()
    for source in pathlib.Path(torch_tpu.__file__).parent.glob("*.py"):
        (package / source.name).write_text(source.read_text())
    (package / f"_C{extension_suffix()}").write_bytes(b"not a library")
    message = last_line(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{IMPORT}")
    assert message.startswith("ImportError: torch_tpu's extension does not load under PyTorch")
    assert "make build" in message and "The loader said:" in message


def extension_suffix() -> str:
    import sysconfig

    return sysconfig.get_config_var("EXT_SUFFIX")


def test_library_of_the_software_tpu_missing():
    code = """
import torch, torch_tpu
from torch_tpu import _C
_C.set_plugin_paths("/nonexistent/libttpu_soft.so", "")
torch.ones(1, device="tpu")
"""
    out = in_fresh_python(code, check=False, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert out.returncode == 1 and "/nonexistent/libttpu_soft.so" in out.stderr.strip().splitlines()[-1]


def test_loading_twice_and_from_threads():
    code = """
import threading, torch, torch_tpu
threads = [threading.Thread(target=torch_tpu.load) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
results = []
def use():
    results.append(torch.ones(8, device="tpu").sum().item())
threads = [threading.Thread(target=use) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print(results)
"""
    assert in_fresh_python(code).stdout.strip() == "[8.0, 8.0, 8.0, 8.0]"
