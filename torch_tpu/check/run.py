"""The process in which a program is checked: runs it, and writes down what was seen.

    python -m torch_tpu.check.run SPECIFICATION

It is a process apart because devices are mapped in it, and because a program may take its process with it: what was
seen so far is written every few seconds, and by whichever way the program ends.
"""

import contextlib
import faulthandler
import inspect
import json
import os
import pathlib
import sys
import threading
import time
import traceback
import types
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

import torch
from torch_tpu import _C
from torch_tpu._imports import when_imported
from torch_tpu.check import cost, devices, memory, parity, places, record, seen, steps, target
from torch_tpu.check.places import Place, lines_naming_cuda, place_of_error, program_files, shown
from torch_tpu.check.record import Recorder
from torch_tpu.check.steps import Enough, Steps

_WRITE_EVERY = 5.0  # seconds
_DEVICE = 0


def _skip_own_frames(dynamo: types.ModuleType) -> None:
    """Keep torch.compile from compiling what watches: it would try each function that runs between two graphs."""
    for module in (cost, devices, memory, parity, places, record, steps):
        owners = [module, *(kind for kind in vars(module).values() if isinstance(kind, type))]
        for owner in owners:
            for function in vars(owner).values():
                if getattr(function, "__module__", "") == module.__name__ and inspect.isfunction(function):
                    dynamo.skip_code(inspect.unwrap(function).__code__)


class Check:
    """One run of a program, and all that is known of it."""

    def __init__(self, specification: dict) -> None:
        self.specification = specification
        torch.tpu.init()
        self.chip = cost.chips()[specification["chip"]]
        self.program = target.find(specification["target"], specification["arguments"], specification["inputs"])
        self.follow = devices.FollowMode() if specification["map_cpu"] else None
        self.steps = Steps(_DEVICE, specification["steps"], specification["seconds"], self.before_module)
        self.limit = specification["memory"] or self.chip["hbm_bytes"]
        self.memory = memory.MemoryWatch(_DEVICE, self.limit, self.owners)
        self.recorder = Recorder(_DEVICE, self.steps, self.memory, self.steps.check_time)
        self.kept: parity.Inputs | None = None
        self.ended = {"how": "running"}
        self.step_marks: list[int] = []
        self.extra: dict[str, Any] = {}
        self.steps.on_end.append(lambda: self.step_marks.append(self.recorder.operators))
        self.steps.on_join += [self.step_marks.clear, self.recorder.join_steps]
        self._known_modules: set[int] = set()
        self._steps_before = 0

    def owners(self) -> tuple[list, list]:
        """The modules and optimizers of the program, as far as they are known."""
        return ([self.kept.module] if self.kept else []), list(self.steps.optimizers)

    def before_module(self, module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """A whole module is about to be called: move it if it is to be, and keep the largest for the comparison."""
        if self.follow is not None and (self.follow.active or devices.is_cpu_program(module)):
            self._move(module)
            args, kwargs = self._move_arguments(args, kwargs)
        if id(module) not in self._known_modules:
            self._known_modules.add(id(module))
            self._keep(module, args, kwargs)
        return args, kwargs

    def _move(self, module: torch.nn.Module) -> None:
        self.follow.active = True
        if any(tensor.device.type == "cpu" for tensor in (*module.parameters(), *module.buffers())):
            self.follow.note(sys._getframe(3))
            with self.follow.paused():
                devices.move_module(module)

    def _move_arguments(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        if not any(t.device.type == "cpu" and t.dim() for t in parity.tensors_of((list(args), kwargs))):
            return args, kwargs
        self.follow.note(sys._getframe(3))
        with self.follow.paused():
            return self.follow.follow((args, kwargs))

    def _keep(self, module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        def size(part: torch.nn.Module) -> int:
            return sum(parameter.numel() for parameter in part.parameters())

        if size(module) > (size(self.kept.module) if self.kept else 0):
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                self.kept = parity.Inputs(module, args, kwargs)
            self.recorder.resume()

    def _files(self) -> list[str]:
        script = pathlib.Path(self.program.name).resolve() if isinstance(self.program, target.Program) else None
        own = {str(script)} if script is not None and script.is_file() else set()
        return sorted(own | self.recorder.files() | set(program_files()))

    # ---- running

    def run(self) -> None:
        """Run the program to its end, whichever that is."""
        torch.tpu.allow_fallback(True)
        when_imported("torch._dynamo.eval_frame", _skip_own_frames)
        with contextlib.ExitStack() as stack:
            stack.enter_context(devices.mapped(self.specification["map_cuda"], self.follow, self.limit))
            stack.enter_context(self.steps.watched())
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(self.recorder.watching_prints())
            stack.enter_context(self.recorder)
            try:
                self.program.run(self.specification["steps"], self._after_call)
                torch.tpu.synchronize()
                self.ended = {"how": "ended"}
            except Enough as enough:
                self.ended = {"how": str(enough)}
            except SystemExit as end:
                self.ended = {"how": "ended"} if end.code in (None, 0) else {"how": "exit", "code": str(end.code)}
            except target.TargetError:
                raise
            except BaseException as error:
                self.ended = self._describe_error(error)
        self.extra["compiled"] = seen.breaks_of_compiled()
        torch.tpu.allow_fallback(False)

    def _after_call(self) -> None:
        """A function was called: that was a step, if it has made none itself."""
        if self.steps.now == self._steps_before:
            self.steps.end()
        self._steps_before = self.steps.now

    def _describe_error(self, error: BaseException) -> dict:
        last, place = self.recorder.last, place_of_error(error)
        return {
            "how": "error",
            "type": type(error).__name__,
            "message": str(error) or place.text,
            "place": place,
            "traceback": "".join(traceback.format_exception(error)),
            "out_of_memory": isinstance(error, torch.OutOfMemoryError),
            "last": {"operator": last.name, "place": last.own} if last else None,
        }

    # ---- what else is to be known, when the program is over

    def compare(self) -> None:
        """Compare with the CPU."""
        if self.ended.get("out_of_memory"):
            self.extra["parity"] = {"error": "the program ran out of memory"}
            return
        trains = self.steps.kind == "optimizer"
        with devices.mapped(self.specification["map_cuda"], None, self.limit):
            if self.kept is not None:
                self._try(
                    "parity", lambda: parity.compare_module(self.kept, trains and self.specification["gradients"])
                )
            elif self.program.function is not None and self.ended["how"] in ("ended", "steps"):
                p = self.program
                self._try("parity", lambda: parity.compare_function(p.function, p.args, p.kwargs, p.result))

    def find_graph_breaks(self) -> None:
        """Where torch.compile would break or has broken the module's graph."""
        if self.specification["graph_breaks"] and self.kept is not None and not self.kept.error:
            self._try("explained", lambda: seen.explain(self.kept))

    def _try(self, name: str, find: Any) -> None:
        try:
            self.extra[name] = find()
        except Exception as error:
            self.extra[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:500]}

    def estimate(self) -> None:
        """How long a step takes: by bounds, and by the TPU compiler where there is one."""
        steps, programs = self.steps.ended, self.steps.programs
        passes = self.recorder.costs.passes
        found = {
            "chip": self.chip["name"],
            "roofline": cost.roofline(steps, programs, passes, self.chip),
            "operators": self.recorder.costs.by_operator(self.chip, len(steps))[:20],
            "step_kind": self.steps.kind,
            "compiler": None,
        }
        if steps and self.specification["compile_seconds"] > 0:
            folder = pathlib.Path(self.specification["folder"])
            budget = self.specification["compile_seconds"]
            try:
                step = cost.steady(steps)[-1]
                found["compiler"] = cost.compiler_estimate(step, programs, passes, self.chip, folder, budget)
            except (ImportError, torch.tpu.aot.CompileError, OSError) as error:
                found["compiler"] = {"error": str(error).splitlines()[0]}
        self.extra["cost"] = found

    def report(self) -> dict:
        """All of it, as JSON takes it."""
        temporaries = cost.largest_temporaries(_C.programs(_DEVICE)) if torch.tpu.is_initialized() else 0
        return {
            "chip": self.chip,
            "ended": self.ended,
            "operators": seen.operators(self.recorder),
            "host_reads": seen.host_reads(self.recorder, len(self.steps.ended)),
            "host_operators": seen.on_host(self.recorder),
            "dynamic": seen.dynamic(self.recorder),
            "recompilations": seen.recompilations(self.recorder, self.steps.ended),
            "compiled": self.extra.get("compiled") or seen.breaks_of_compiled(),
            "explained": self.extra.get("explained"),
            "memory": memory.findings(self.memory, temporaries, self.step_marks),
            "parity": self.extra.get("parity"),
            "cost": self.extra.get("cost"),
            "cuda": [{"place": p, "text": p.text} for p in lines_naming_cuda(self._files())],
            "moved": []
            if self.follow is None
            else [{"place": p, "text": p.text, "count": n} for p, n in self.follow.moved.most_common()],
            "calls": {"tpu": self.recorder.operators, "elsewhere": self.recorder.elsewhere},
            "steps": {
                "count": len(self.steps.ended),
                "kind": self.steps.kind,
                "seconds": [step.seconds for step in self.steps.ended],
            },
        }


def _with_places(value: Any) -> Any:
    """The same with places as dictionaries: JSON would make lists of them."""
    if isinstance(value, Place):
        return {"file": shown(value.file), "line": value.line, "function": value.function}
    if isinstance(value, dict):
        return {str(key): _with_places(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_places(item) for item in value]
    return value


def write(report: dict, path: pathlib.Path) -> None:
    """Write a report as a whole: whoever reads the file finds the last one or this."""
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(_with_places(report)))
    temporary.replace(path)


def _write_now_and_then(check: Check, path: pathlib.Path, over: threading.Event) -> None:
    while not over.wait(_WRITE_EVERY):
        with contextlib.suppress(RuntimeError):  # a table grew while it was read: next time
            write(check.report(), path)


def main(arguments: list[str]) -> int:
    """Check what a file says, and write the report where it says."""
    specification = json.loads(pathlib.Path(arguments[0]).read_text())
    output = pathlib.Path(specification["output"])
    crash = output.with_suffix(".crash").open("w")  # open until the end
    faulthandler.enable(crash, all_threads=False)
    check = Check(specification)
    over = threading.Event()
    writer = threading.Thread(target=_write_now_and_then, args=(check, output, over), daemon=True)
    writer.start()
    try:
        check.run()
    except target.TargetError as error:
        write({"usage": str(error)}, output)
        return 2
    finally:
        over.set()
        writer.join()
    began = time.monotonic()
    write(check.report(), output)
    check.estimate()
    if specification["parity"]:
        check.compare()
    check.find_graph_breaks()
    report = check.report()
    report["seconds_after"] = time.monotonic() - began
    write(report, output)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the program may have left threads that never end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
