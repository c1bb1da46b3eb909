"""The commands ``ttpu aot`` and ``ttpu aot-worker``."""

import argparse
import importlib.util
import json
import os
import pathlib
import sys

from torch_tpu import aot
from torch_tpu.aot import compiler

DESCRIPTION = """\
Compile a program for TPUs that need not be there, and print what it takes.

FILE is StableHLO (text, or a portable artifact), or a Python file with a function, FILE.py:name ("aot" by default).
That function takes nothing and returns what to compile: a pair (module or function, its arguments), or a dict of
arguments for torch.tpu.aot.compile: {"target": step, "args": (tokens,), "state": (model, optimizer), "mesh": ...}.

Exit status: 0 compiled, 1 the TPU compiler refused (its message is printed, and its code: 8 is too little memory), 2 a
wrong call, or libtpu is missing.
"""


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add both commands to the command line."""
    parser = commands.add_parser(
        "aot",
        help="compile a program for TPUs ahead of time, without a TPU",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE[:name]")
    parser.add_argument("--topology", action="append", required=True, help="v6e:1x1; several: one report each")
    parser.add_argument("--partitions", type=int, help="of a StableHLO program that does not say so itself")
    parser.add_argument("--json", action="store_true", help="a list of reports, for programs")
    parser.add_argument("--save", metavar="PATH", help="write the executable (of one topology)")
    parser.add_argument("--program", metavar="PATH", help="write the StableHLO that was compiled")
    parser.set_defaults(run=run)
    worker = commands.add_parser("aot-worker", help="the process that holds the TPU compiler: requests on its input")
    worker.add_argument("library", nargs="?", help="libtpu.so; found as by torch.tpu.aot where not given")
    worker.set_defaults(run=run_worker)


class _UsageError(Exception):
    pass


def _call(path: pathlib.Path, name: str) -> dict:
    """What a Python file's function says is to be compiled, as arguments of ``compile``."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    specification.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise _UsageError(f"{path} has no function {name}")
    made = function()
    if isinstance(made, tuple) and len(made) == 2:
        return {"target": made[0], "args": made[1]}
    if isinstance(made, dict) and "target" in made:
        return made
    raise _UsageError(
        f"{path}:{name}() returned {type(made).__name__}; expected (module or function, arguments) or a dict with "
        f"'target', as arguments of torch.tpu.aot.compile"
    )


def _arguments(options: argparse.Namespace) -> dict:
    file, _, name = options.file.partition(":")
    path = pathlib.Path(file)
    if not path.is_file():
        raise _UsageError(f"{path} does not exist")
    if path.suffix == ".py":
        return _call(path, name or "aot")
    if name:
        raise _UsageError(f"{path} is no Python file, so it has no function {name}")
    code = path.read_bytes()
    return {"target": code, "partitions": options.partitions}


def _reports(options: argparse.Namespace) -> list[aot.Report]:
    compiler.library_path()  # says what is missing before anything is captured
    given = _arguments(options)
    target = given.pop("target")
    if not isinstance(target, str | bytes | aot.Program):
        captured = ("args", "kwargs", "state")
        target = aot.capture(target, **{name: given.pop(name) for name in captured if name in given})
    given.pop("topology", None)
    return [aot.compile(target, topology=topology, **given) for topology in options.topology]


def run(options: argparse.Namespace) -> int:
    """Compile and print."""
    if options.save and len(options.topology) > 1:
        print("ttpu aot: --save is for one topology", file=sys.stderr)
        return 2
    try:
        reports = _reports(options)
    except aot.CompileError as error:
        print(f"ttpu aot: the TPU compiler refused, code {error.code}\n{error}", file=sys.stderr)
        if error.used_bytes is not None:
            print(f"needed {error.used_bytes} bytes, available {error.available_bytes} bytes", file=sys.stderr)
        return 1
    except (_UsageError, ImportError, ValueError) as error:
        print(f"ttpu aot: {error}", file=sys.stderr)
        return 2
    if options.save:
        reports[0].save(options.save)
    if options.program:
        code = reports[0].program
        pathlib.Path(options.program).write_bytes(code.encode() if isinstance(code, str) else code)
    if options.json:
        print(json.dumps([report.to_dict() for report in reports], indent=1))
    else:
        print("\n\n".join(map(str, reports)))
    return 0


def run_worker(options: argparse.Namespace) -> int:
    """Become the compiler's process."""
    library = options.library or compiler.library_path()
    environment = {**compiler.ENVIRONMENT, **os.environ}
    os.execve(compiler.worker_path(), [compiler.worker_path(), library], environment)
