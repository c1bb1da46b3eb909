"""The command ``ttpu``."""

import argparse
import platform

import torch
from torch_tpu import __version__


def info() -> None:
    """Print devices, plugin, versions and the CPU features in use."""
    from torch_tpu import _C

    plugin = _C.plugin_info()
    features = [name for name, on in _C.cpu_features().items() if on is True]
    print(f"ttpu {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}")
    print(f"plugin   {plugin['path']}")
    major, minor = plugin["pjrt_api_version"]
    kind = "software TPU" if plugin["software"] else "plugin"
    print(f"         {kind}, platform {plugin['platform']} {plugin['platform_version']}, PJRT C API {major}.{minor}")
    print(f"cpu      {_C.cpu_features()['cores']} cores, {', '.join(features) or 'portable code'}")
    for index in range(torch.tpu.device_count()):
        properties = torch.tpu.get_device_properties(index)
        print(
            f"tpu:{index}    {properties.name}, {properties.total_memory / 2**30:.2f} GiB, "
            f"coords {properties.coords}, core {properties.core_on_chip}"
        )


def operators() -> None:
    """Print the operators that run natively, one a line."""
    from torch_tpu import _C

    for name in sorted(_C.registered_operators()):
        print(f"aten::{name}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="ttpu", description="A native PyTorch backend for TPUs.")
    parser.add_argument("--version", action="version", version=f"ttpu {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in (info, operators):
        commands.add_parser(command.__name__, help=command.__doc__).set_defaults(run=command)
    parser.parse_args(arguments).run()


if __name__ == "__main__":
    main()
