"""The command ``ttpu``."""

import argparse
import json
import os
import pathlib
import platform
import sys

import torch
from torch_tpu import __version__
from torch_tpu._loader import find_libtpu


def info(_: argparse.Namespace) -> None:
    """Print devices, plugin, versions and the CPU features in use."""
    from torch_tpu import _C

    plugin = _C.plugin_info()
    features = [name for name, on in _C.cpu_features().items() if on is True]
    print(f"ttpu {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}")
    print(f"plugin   {plugin['path']}")
    major, minor = plugin["pjrt_api_version"]
    kind = "software TPU" if plugin["software"] else "plugin"
    print(f"         {plugin['reason']}")
    print(f"         {kind}, platform {plugin['platform']} {plugin['platform_version']}, PJRT C API {major}.{minor}")
    print(f"cpu      {_C.cpu_features()['cores']} cores, {', '.join(features) or 'portable code'}")
    for index in range(torch.tpu.device_count()):
        properties = torch.tpu.get_device_properties(index)
        print(
            f"tpu:{index}    {properties.name}, {properties.total_memory / 2**30:.2f} GiB, "
            f"coords {properties.coords}, core {properties.core_on_chip}"
        )


def ops(options: argparse.Namespace) -> None:
    """Print which of PyTorch's operators run on tpu, and how."""
    from torch_tpu import operators

    listed = [
        operator
        for operator in operators.operators()
        if options.name in operator.name
        and (not options.core or operator.core)
        and options.status in (None, operator.status)
    ]
    page = operators.markdown(listed) if options.markdown else operators.text(listed)
    print(page, end="")


def plugin(options: argparse.Namespace) -> None:
    """Print what a PJRT plugin offers and lacks; without a path, of the one that would be used."""
    from torch_tpu import plugins

    report = plugins.report(options.path, options.options)
    print(plugins.text(report) if not options.json else json.dumps(report, indent=1))


def check_stablehlo(options: argparse.Namespace) -> int:
    """Run StableHLO's own test files (text) on the first device; ends with how many passed."""
    os.environ.setdefault("TTPU_TOPOLOGY", "v5e:2x4")  # interpreter.run_parallel takes several chips
    from torch_tpu import stablehlo_tests

    report = stablehlo_tests.run(options.path, verbose=options.verbose)
    print(report.json() if options.json else report.text())
    return 1 if report.failed else 0


def run_model(arguments: list[str]) -> int:
    """Run a saved model (torch.tpu.export) on tensors from files, without Python."""
    program = pathlib.Path(__file__).parent / "lib" / "ttpu-run"
    libtpu = find_libtpu()
    if libtpu:
        os.environ.setdefault("TPU_LIBRARY_PATH", libtpu)  # taken on a machine with TPU chips alone
    sys.stdout.flush()
    os.execv(program, [str(program), *arguments])


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["run"]:  # its options are the other program's
        return run_model(given[1:])
    from torch_tpu.aot import command as aot_command
    from torch_tpu.check import command as check_command
    from torch_tpu.operators import STATUSES

    parser = argparse.ArgumentParser(prog="ttpu", description="A native PyTorch backend for TPUs.")
    parser.add_argument("--version", action="version", version=f"ttpu {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help=info.__doc__).set_defaults(run=info)
    described = commands.add_parser("plugin", help=plugin.__doc__)
    described.add_argument("path", nargs="?", help="the plugin's shared library")
    described.add_argument("--options", default=None, help="name=value,...; TTPU_PLUGIN_OPTIONS by default")
    described.add_argument("--json", action="store_true", help="for programs")
    described.set_defaults(run=plugin)
    listing = commands.add_parser("ops", help=ops.__doc__)
    listing.add_argument("name", nargs="?", default="", help="only operators with this in their name")
    listing.add_argument("--status", choices=list(STATUSES), help="only those of this status")
    listing.add_argument("--core", action="store_true", help="only Core ATen operators")
    listing.add_argument("--markdown", action="store_true", help="as a page: docs/operators.md is made so")
    listing.set_defaults(run=ops)
    aot_command.add_to(commands)
    check_command.add_to(commands)
    checking = commands.add_parser("check-stablehlo", help=check_stablehlo.__doc__)
    checking.add_argument("path", nargs="+", help="files of StableHLO text, or folders of them")
    checking.add_argument("--json", action="store_true", help="one object with every case")
    checking.add_argument("--verbose", action="store_true", help="each case as it is run")
    checking.set_defaults(run=check_stablehlo)
    commands.add_parser("run", help=run_model.__doc__, add_help=False)
    options = parser.parse_args(arguments)
    return options.run(options) or 0


if __name__ == "__main__":
    sys.exit(main())
