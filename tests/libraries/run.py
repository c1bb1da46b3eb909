"""Runs a library's own tests on cpu and on tpu, and lists what passes on cpu and not on tpu.

    python tests/libraries/run.py LIBRARY PATH [FILES ...]

PATH is a source tree of the library, of the installed version or near. Its tests run on the installed package. A test
counts only if it passes on cpu, where this backend is not loaded at all, and only such tests run on tpu. A test that
skips itself on tpu is not counted; a crash or a timeout counts as a failure. FILES are relative to the tree and may be
patterns; without them it is the library's usual choice. Nothing is downloaded: tests that want weights fail on cpu, and
so do not count.

The exit status is 1 where fewer than --at-least per cent of what passes on cpu passes on tpu.
"""

import argparse
import collections
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
UPSTREAM = HERE.parent / "upstream"


def load_upstream():
    """The runner of PyTorch's own tests, which counts in the same way."""
    specification = importlib.util.spec_from_file_location("upstream_run", UPSTREAM / "run.py")
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


upstream = load_upstream()

# Types of models that people use most, of each kind: text, images, sound, several of these.
MODELS = """
albert bart bert bloom clip cohere2 deberta_v2 deepseek_v3 detr dinov2 distilbert electra falcon gemma gemma2
gemma3 gpt2 gpt_neox gpt_oss llama llava mamba mistral mixtral modernbert olmo2 opt phi3 qwen2 qwen2_vl qwen3
qwen3_moe roberta segformer siglip smollm3 swin t5 vit wav2vec2 whisper xlm_roberta
""".split()

PEFT = """
bufferdict custom_models initialization lora_variants low_level_api mixed target_parameters tuners_utils vera
""".split()
ACCELERATE = """
accelerator big_modeling data_loader grad_sync hooks kwargs_handlers memory_utils modeling_utils offload optimizer
scheduler state_checkpointing utils
""".split()


@dataclasses.dataclass
class Library:
    """How the tests of a library are run.

    Attributes
    ----------
    package
        Its name among installed packages.
    files
        What is run where the caller names no files.
    device
        Environment variables that its tests read to choose a device; "{}" becomes cpu or tpu.
    without
        Tests that are left out, as a regular expression over their names: they download, take an hour, or can only
        pass on the CPU.
    """

    package: str
    files: list[str]
    device: dict[str, str] = dataclasses.field(default_factory=dict)
    without: str = ""


LIBRARIES = {
    "transformers": Library(
        "transformers",
        [f"tests/models/{name}/test_modeling_{name}.py" for name in MODELS],
        {"TRANSFORMERS_TEST_DEVICE": "{}"},
        "Integration|_hub|flash_attn|test_sdpa_can_dispatch_on_flash",
    ),
    "timm": Library(
        "timm",
        ["tests/test_layers*.py", "tests/test_optim.py", "tests/test_utils.py", "tests/test_models.py"],
        {"TORCH_DEVICE": "{}"},
        r"test_model_forward_torchscript\[",  # gives the model on the device an input on the CPU
    ),
    # Most others of its files take their models from a hub, again and again until a test's time is over.
    "peft": Library("peft", [f"tests/test_{name}.py" for name in PEFT]),
    "accelerate": Library("accelerate", [f"tests/test_{name}.py" for name in ACCELERATE]),
    "diffusers": Library(
        "diffusers",
        ["tests/schedulers/*.py", *(f"tests/models/{kind}/*.py" for kind in ("autoencoders", "transformers", "unets"))],
        {"DIFFUSERS_TEST_DEVICE": "{}"},
    ),
}


def environment_for(options: argparse.Namespace, device: str) -> dict[str, str]:
    """What the processes of one run see."""
    paths = [str(HERE.parents[1]), str(HERE), str(UPSTREAM), str(HERE.parent / "hf"), os.environ.get("PYTHONPATH", "")]
    chosen = {name: value.format(device) for name, value in LIBRARIES[options.library].device.items()}
    return {
        **os.environ,
        **chosen,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",  # workers must collect sets in one order
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if device == "tpu" else "0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // options.jobs)),
        "LIBRARIES_DEVICE": device,
        "LIBRARIES_PACKAGE": LIBRARIES[options.library].package,
        "LIBRARIES_WITHOUT": options.without,
        "LIBRARIES_PART": options.part,
    }


def pytest_command(options: argparse.Namespace, names: list[str]) -> list[str]:
    """The call of pytest for some files: the tree's fixtures, but none of its settings, and nothing written into it."""
    command = [sys.executable, "-m", "pytest", *(str(options.path / name) for name in names)]
    command += [f"--rootdir={options.path}", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "libraries_plugin"]
    command += ["-q", "-W", "ignore", "--tb=native"]
    # A worker that crashes fails the test that it ran, and another takes its place.
    command += ["-n", str(options.jobs), "--dist=worksteal", "--max-worker-restart=100000"]
    # First an exception in the test; where that is not possible, in the middle of C code, the end of the worker.
    command += [f"--timeout={options.timeout}", "--timeout-method=signal"]
    command += ["-o", f"faulthandler_timeout={options.timeout + 30}", "-o", "faulthandler_exit_on_timeout=true"]
    return command


def read_results(path: Path, names: list[str]) -> dict:
    """The JSON lines that libraries_plugin.py wrote, by file."""
    runs = {name: upstream.Run({}) for name in names}
    for line in path.read_text().splitlines() if path.exists() else []:
        result = json.loads(line)
        if "collect" in result:
            for name in names:
                if name == result["collect"].partition("::")[0]:
                    runs[name].problem = result["message"]
        else:
            test = result.pop("key")
            runs[test.partition("::")[0]].results[test] = result
    return runs


def run_files(options: argparse.Namespace, names: list[str], device: str, choice: list[str] | None = None) -> dict:
    """Run some files on one device, all tests or the chosen ones alone."""
    with tempfile.TemporaryDirectory() as folder:
        results, chosen = Path(folder, "results"), Path(folder, "choice")
        environment = {**environment_for(options, device), "LIBRARIES_RESULTS": str(results)}
        command = pytest_command(options, names)
        if choice is not None:
            chosen.write_text("\n".join(choice))
            environment["LIBRARIES_CHOICE"] = str(chosen)
        elif options.k:
            command += ["-k", options.k]
        log = Path(options.logs, f"{Path(names[0]).stem}.{device}.log") if options.logs else Path(folder, "log")
        with open(log, "w") as output:
            done = subprocess.run(command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        runs = read_results(results, names)
        broken = done.returncode not in (0, 1, 5)  # 5: no test of this name
        if broken and not any(run.problem for run in runs.values()):
            tail = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
            for run in runs.values():
                run.problem = f"pytest stopped with status {done.returncode}: {''.join(tail)}"
        return runs


def compare_files(options: argparse.Namespace, names: list[str], earlier: dict) -> list:
    """Run some files on both devices; with an earlier report only what failed on tpu."""
    if earlier:
        comparisons = [from_report(name, earlier[name]) for name in names if name in earlier]
        tests = [test for c in comparisons for test, outcome in c.counted().items() if outcome == "failed"]
    else:
        cpu = run_files(options, names, "cpu")
        comparisons = [upstream.Comparison(name, cpu[name], upstream.Run({})) for name in names]
        results = [item for c in comparisons for item in c.cpu.results.items()]
        tests = [test for test, result in results if result["outcome"] == "passed"]
    if tests:
        now = run_files(options, [c.name for c in comparisons], "tpu", tests)
        for c in comparisons:
            c.tpu = upstream.Run(c.tpu.results | now[c.name].results, now[c.name].problem)
    return comparisons


def from_report(name: str, report: dict):
    """What an earlier run found out about a file."""
    return upstream.Comparison(name, upstream.Run(**report["cpu"]), upstream.Run(**report["tpu"]))


def print_file(comparison) -> None:
    """The tests of one file that fail on tpu alone."""
    for test, message in comparison.failures():
        print(f"{test}\n    {message}")
    for device in ("cpu", "tpu"):
        if problem := getattr(comparison, device).problem:
            print(f"{comparison.name} on {device}: {problem}")


def print_summary(comparisons: list) -> float:
    """A line a file and one for all; the share of all."""
    skipped = sum((comparison.skipped() for comparison in comparisons), collections.Counter())
    print(f"\n{'passed on':<70}{'cpu':>8}{'tpu':>8}{'%':>9}{'skipped':>9}")
    for comparison in comparisons:
        figures = upstream.figures(list(comparison.counted().values()))
        print(f"{comparison.name:<70}{figures}{comparison.skipped().total():>9}")
    everything = [outcome for comparison in comparisons for outcome in comparison.counted().values()]
    print(f"{'all':<70}{upstream.figures(everything)}{skipped.total():>9}")
    for reason, count in skipped.most_common(10):
        print(f"    skipped {count}: {reason}")
    return upstream.share(everything.count("passed"), len(everything))


def find_files(options: argparse.Namespace) -> list[str]:
    """The files that were named, or the library's usual ones that the tree has."""
    names = []
    for pattern in options.files or LIBRARIES[options.library].files:
        found = sorted(str(path.relative_to(options.path)) for path in options.path.glob(pattern) if path.is_file())
        if options.files and not found:
            raise ValueError(f"no file {pattern} in {options.path}")
        names += [name for name in found if Path(name).name.startswith("test_") and name not in names]
    if not names:
        raise ValueError(
            f"{options.path} has none of the files that are run of {options.library}; is it its source tree?"
        )
    return names


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("path", type=Path, help="a source tree of the library")
    parser.add_argument("files", nargs="*", help="files of tests, relative to the tree")
    parser.add_argument("-k", help="only these tests: pytest's expression")
    parser.add_argument("--part", default="0/1", help="i/n: of all tests one in n, chosen by a hash of their names")
    parser.add_argument("--json", type=Path, help="write what became of each test")
    parser.add_argument("--again", type=Path, help="run only what failed on tpu according to this --json report")
    parser.add_argument("--without", help="leave out tests whose names match; default: what the library's table says")
    parser.add_argument("--group", type=int, default=8, help="files that one process imports; default: 8")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one a core")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one test; default: 120")
    parser.add_argument("--logs", type=Path, help="keep pytest's output, with tracebacks, in this folder")
    parser.add_argument("--at-least", type=float, default=98.0, help="per cent; default: 98")
    options = parser.parse_intermixed_args(arguments)
    options.path = options.path.resolve()
    if options.without is None:
        options.without = LIBRARIES[options.library].without
    if options.logs:
        options.logs = options.logs.resolve()
        options.logs.mkdir(parents=True, exist_ok=True)
    try:
        options.files = find_files(options)
    except ValueError as error:
        parser.error(str(error))
    return options


def write_report(options: argparse.Namespace, comparisons: list) -> None:
    """After each group of files: a long run may be interrupted."""
    files = {c.name: {"cpu": dataclasses.asdict(c.cpu), "tpu": dataclasses.asdict(c.tpu)} for c in comparisons}
    version = importlib.metadata.version(LIBRARIES[options.library].package)
    options.json.write_text(json.dumps({options.library: version, "files": files}, indent=1))


def main(arguments: list[str] | None = None) -> int:
    """Run, list, sum up."""
    options = parse(arguments)
    earlier = json.loads(options.again.read_text())["files"] if options.again else {}
    comparisons = []
    for first in range(0, len(options.files), options.group):
        start = time.monotonic()
        group = compare_files(options, options.files[first : first + options.group], earlier)
        for comparison in group:
            counted = list(comparison.counted().values())
            print(f"== {comparison.name}: {counted.count('passed')} of {len(counted)}")
            print_file(comparison)
        print(f"   {time.monotonic() - start:.0f} s", flush=True)
        comparisons += group
        if options.json:
            write_report(options, comparisons)
    return 0 if print_summary(comparisons) >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
