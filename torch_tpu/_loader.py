"""Makes the device known to PyTorch: once, in milliseconds, without starting it."""

import atexit
import importlib.metadata
import importlib.util
import pathlib

__version__ = "0.1.0"

_loaded = False


def _refuse_namesake() -> None:
    for other in ("torch-tpu", "torch_tpu"):
        try:
            found = importlib.metadata.distribution(other)
        except importlib.metadata.PackageNotFoundError:
            continue
        raise ImportError(
            f"the distribution {found.metadata['Name']} {found.version} also provides the package torch_tpu; "
            f"uninstall one of the two: pip uninstall {found.metadata['Name']} (or ttpu)"
        )


def _import_extension():
    import torch

    try:
        from torch_tpu import _C
    except ImportError as error:
        raise ImportError(
            f"torch_tpu's extension does not load under PyTorch {torch.__version__}: build it again for this release "
            f"with `pip install --no-build-isolation .` (or `make build`). The loader said: {error}"
        ) from error
    built, running = (v.split("+")[0].split(".")[:2] for v in (_C.torch_version, torch.__version__))
    if built != running:
        raise ImportError(
            f"torch_tpu was built for PyTorch {'.'.join(built)} but this is {torch.__version__}: build it again with "
            f"`pip install --no-build-isolation .` (or `make build`)."
        )
    return _C


def find_libtpu() -> str:
    """The library of an installed libtpu, without importing it; "" where there is none."""
    found = importlib.util.find_spec("libtpu")
    folders = found.submodule_search_locations if found else None
    return next((str(p) for p in (pathlib.Path(f) / "libtpu.so" for f in folders or ()) if p.is_file()), "")


def load() -> None:
    """Register the device ``tpu`` and the module ``torch.tpu``; later calls do nothing.

    Raises
    ------
    ImportError
        If the extension was built for another release of PyTorch, or another distribution provides the same package.
    """
    global _loaded
    import torch  # may come back here first, through the entry point

    if _loaded:
        return
    _refuse_namesake()
    extension = _import_extension()
    soft = pathlib.Path(__file__).parent / "lib" / "libttpu_soft.so"
    extension.set_plugin_paths(str(soft), find_libtpu() if extension.chip_count() else "")
    torch.utils.rename_privateuse1_backend("tpu")
    from torch_tpu import compile, distributed, fake, integrations, tpu

    torch._register_device_module("tpu", tpu)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    extension.register()
    compile.install()
    distributed.install()
    fake.install()
    integrations.install()
    atexit.register(extension.stop_autograd)
    torch.set_autocast_dtype("tpu", torch.bfloat16)  # of this thread; PyTorch's default for new devices is float16
    _loaded = True
