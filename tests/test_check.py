"""``ttpu check``: what it says of seeded bad programs, with file and line, and its parts by themselves."""

import argparse
import concurrent.futures
import json
import pathlib
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import torch
from torch_tpu import _C, cli
from torch_tpu.check import command, cost, judge, memory, page, parity, places, report, target

PROGRAMS = pathlib.Path(__file__).parent / "check_programs"
QUICK = ["--compile-seconds", "0"]
CALLS = {
    "missing_operator": [*QUICK, str(PROGRAMS / "missing_operator.py")],
    "host_read": [*QUICK, "--fail-on", "warning", str(PROGRAMS / "host_read.py"), "--batches", "6"],
    "overflow": [*QUICK, "--memory", "64M", str(PROGRAMS / "overflow.py")],
    "growing": [*QUICK, "--steps", "0", "--chip", "v6e", str(PROGRAMS / "growing.py")],
    "processes": [*QUICK, "--steps", "0", str(PROGRAMS / "processes.py")],
    "unequal": [*QUICK, "--steps", "2", "--input", "arguments", f"{PROGRAMS / 'unequal.py'}:Model"],
}


class Outcome:
    """The report, as text and page too."""

    def __init__(self, name: str) -> None:
        parser = argparse.ArgumentParser()
        command.add_to(parser.add_subparsers())
        options = parser.parse_args(["check", *CALLS[name]])
        self.report = command.check(options)
        self.text, self.page = report.text(self.report), page.html(self.report)
        self.fails = judge.fails(self.report["verdict"], options.fail_on)

    def findings(self, topic: str, severity: str) -> list[dict]:
        """Those of a topic and severity."""
        return [f for f in self.report["findings"] if f["topic"] == topic and f["severity"] == severity]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """All programs, checked two at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(CALLS, pool.map(Outcome, CALLS), strict=True))


def line_of(program: str, text: str) -> int:
    """The number of the line with a text in it."""
    lines = (PROGRAMS / program).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def assert_at(finding: dict, program: str, text: str) -> None:
    """The finding names the file and the line with that text."""
    assert pathlib.Path(finding["place"]["file"]).name == program
    assert finding["place"]["line"] == line_of(program, text)


# ---- programs ----


def test_processes_over_nccl(outcomes):
    outcome = outcomes["processes"]
    assert outcome.report["ended"] == {"how": "ended"} and not outcome.findings("operator", "error")
    assert outcome.report["steps"]["count"] == 2
    line = line_of("processes.py", "loss.backward")
    [exchanged] = [row for row in outcome.report["host_reads"] if row["place"]["line"] == line]
    assert exchanged["operators"] == ["c10d::allreduce_"] and exchanged["kind"] == "collective"
    assert line not in {f["place"]["line"] for f in outcome.findings("host read", "warning")}


def test_an_operator_that_does_not_exist(outcomes):
    outcome = outcomes["missing_operator"]
    [finding] = outcome.findings("operator", "error")
    assert_at(finding, "missing_operator.py", "fused_moving_avg_obs_fake_quant")
    assert "_fused_moving_avg_obs_fq_helper does not exist on tpu" in finding["message"]
    assert outcome.report["ended"] == {"how": "ended"}  # it went on, to find others too
    assert outcome.fails and outcome.report["verdict"] == "will not run"
    assert f"missing_operator.py:{finding['place']['line']}: operator:" in outcome.text
    rows = {row["operator"]: row for row in outcome.report["operators"]}
    assert rows["sum"]["status"] == "native"
    assert rows["sum"]["shapes"] == [{"tensors": "float32[8,8]", "count": 1}]


def test_a_host_read_in_the_loop(outcomes):
    outcome = outcomes["host_read"]
    [finding] = outcome.findings("host read", "warning")
    assert_at(finding, "host_read.py", "loss.item()")
    [read] = outcome.report["host_reads"]
    assert (read["count"], read["in_loop"], read["operators"]) == (12, True, ["_local_scalar_dense"])
    assert "12 times, 2 a step" in finding["message"]
    assert outcome.report["steps"]["count"] == 6 and outcome.report["steps"]["kind"] == "optimizer"
    assert outcome.fails and outcome.report["verdict"] == "runs with warnings"  # by --fail-on warning


def test_what_else_is_known_of_a_training_loop(outcomes):
    known = outcomes["host_read"].report
    assert known["recompilations"]["late_steps_that_build"] == 0
    assert known["parity"]["first"] is None
    assert {row["layer"] for row in known["parity"]["gradients"]} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    named = {row["place"]["line"] for row in known["cuda"]}
    assert named == {line_of("host_read.py", '"cuda" if'), line_of("host_read.py", ".cuda()")}
    rows = {row["operator"]: row for row in known["operators"]}
    backward = next(place for place in rows["mm"]["places"] if place["backward"])
    assert backward["place"]["line"] == line_of("host_read.py", "cross_entropy(")  # of the forward call
    line = known["cost"]["roofline"]
    assert line["seconds"] >= max(line["compute"], line["memory"]) > 0


def test_a_memory_overflow(outcomes):
    outcome = outcomes["overflow"]
    [finding] = outcome.findings("memory", "error")
    assert_at(finding, "overflow.py", "torch.ones(4096, 5120")
    assert "16.00 MiB too much" in finding["message"]
    memory = outcome.report["memory"]
    assert memory["limit"] == 64 << 20 and memory["peak"] >= 80 << 20
    largest = memory["largest"][0]
    assert (largest["bytes"], largest["sizes"], largest["operator"]) == (80 << 20, [4096, 5120], "ones")
    assert largest["place"] == finding["place"]
    assert memory["kinds"]["activations and other tensors"] >= 80 << 20
    assert outcome.report["ended"] == {"how": "ended"}  # how much too much is known at its end
    assert outcome.fails


def test_sizes_that_change_and_a_program_that_fails(outcomes):
    outcome = outcomes["growing"]
    assert_at(outcome.findings("error", "error")[0], "growing.py", "raise KeyError")
    assert "KeyError" in outcome.findings("error", "error")[0]["message"]
    assert_at(outcome.findings("dynamic shape", "warning")[0], "growing.py", "output[output > 0]")
    general, *lines = outcome.findings("recompilation", "warning")
    assert "steps behind the first 2 met programs that were new" in general["message"]
    assert line_of("growing.py", "output = model") in {finding["place"]["line"] for finding in lines}
    assert all(built > 0 for built in outcome.report["recompilations"]["built"])
    printed = outcome.findings("host read", "warning")[0]
    assert_at(printed, "growing.py", "print(output.sum())")
    assert "3 times" in printed["message"] and "print every so many steps" in printed["advice"]
    moved = outcome.report["moved"]  # a program for the CPU
    assert moved[0]["place"]["line"] == line_of("growing.py", "output = model") and moved[0]["count"] >= 7
    assert outcome.report["chip"]["name"] == "v6e"


def test_the_first_layer_that_differs(outcomes):
    outcome = outcomes["unequal"]
    first = outcome.report["parity"]["first"]
    assert (first["layer"], first["kind"]) == ("second", "Other")
    assert first["difference"] == pytest.approx(0.25, rel=1e-3)
    [finding] = outcome.findings("parity", "warning")
    assert "Other second is the first of 3 that differ" in finding["message"]
    assert outcome.report["steps"]["count"] == 2 and not outcome.fails


@pytest.mark.parametrize("name", CALLS)
def test_the_page_stands_alone(outcomes, name):
    page = outcomes[name].page
    assert outcomes[name].report["verdict"] in page
    assert not re.search(r"(src|href)=|@import|url\(", page)
    facts = re.search(r'<div class="facts">(.*?)\n</div>', page, re.DOTALL).group(1)
    reads = sum(row["count"] for row in outcomes[name].report["host_reads"])
    assert f'<b class="">{reads:,}</b><span>reads by the host</span>' in facts
    assert report.tally(outcomes[name].report) in page
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert drawn
    for picture in drawn:
        xml.etree.ElementTree.fromstring(picture)


def test_the_command(tmp_path):
    """Exit status, files, and the program's own output beside the report."""
    program = tmp_path / "fine.py"
    program.write_text("import sys, torch\nprint('it says', sys.argv[1:], torch.ones(2, device='tpu').sum())\n")
    files = [tmp_path / "report.json", tmp_path / "page.html"]
    call = [
        sys.executable,
        "-m",
        "torch_tpu.cli",
        "check",
        *QUICK,
        "--json",
        files[0],
        "--html",
        files[1],
        program,
        "--x",
    ]
    done = subprocess.run(list(map(str, call)), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "VERDICT: ready" in done.stdout and "it says ['--x']" not in done.stdout
    assert "it says ['--x'] tensor(2., device='tpu:0')" in done.stderr
    assert json.loads(files[0].read_text())["verdict"] == "ready" and "ready" in files[1].read_text()


# ---- wrong calls ----


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere.py"], "nowhere.py does not exist"),
        (["no_such_module_at_all"], "neither a file nor a module"),
        (["--chip", "v99", "x.py"], "no chip is named v99; there are"),
        (["--input", "f", str(PROGRAMS / "overflow.py")], "--input gives the arguments of a function"),
    ],
)
def test_a_wrong_call_says_so(arguments, message, capfd):
    assert cli.main(["check", *arguments]) == 2
    assert message in capfd.readouterr().err


def test_a_size_that_is_none(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["check", "--memory", "much", "x.py"])
    assert end.value.code == 2
    assert "expected one such as 12G" in capsys.readouterr().err


# ---- parts ----


def test_what_the_runtime_tells_who_watches():
    x = torch.ones(64, 64, device="tpu")
    y = x @ x
    torch.tpu.synchronize()
    before = {program["key"]: program["runs"] for program in _C.programs(0)}
    z = torch.ones(64, 64, device="tpu") @ torch.ones(64, 64, device="tpu")
    torch.tpu.synchronize()
    ran = [program for program in _C.programs(0) if program["runs"] > before.get(program["key"], 0)]
    assert sum(program["flops"] for program in ran) >= 2 * 64**3
    assert all(program["bytes_accessed"] > 0 and program["temporaries"] >= 0 for program in ran)
    live = dict(_C.live_storages(0, 64 * 64 * 4))
    assert all(live[tensor.untyped_storage().data_ptr()] == 64 * 64 * 4 for tensor in (x, y, z))
    reads, built, held, peak = _C.watched(0)
    y.sum().item()
    assert _C.watched(0)[0] == reads + 1
    assert peak >= held >= 3 * 64 * 64 * 4 and built > 0


def test_the_chips():
    chips = cost.chips()
    assert {"v4", "v5e", "v5p", "v6e", "tpu7x"} <= set(chips)
    assert chips["v5litepod"] is chips["v5e"]
    assert chips["v6e"]["flops_per_second"] == 918e12
    assert chips["tpu7x"]["flops_per_second"] == 2307e12 / 2  # of one of its two devices
    assert cost.topology_of(chips["v5e"]) == "v5e:1x1" and cost.topology_of(chips["v4"], True) == "v4:2x2x1"


def test_differences():
    a = torch.tensor([1.0, 2.0, float("nan"), float("inf")])
    assert parity.difference(a, a) == 0
    assert parity.difference(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0])) == pytest.approx(0.25)
    assert parity.difference(torch.tensor([1e-9]), torch.tensor([-1e-9]), least=1.0) == pytest.approx(2e-9)
    for other in (torch.zeros(4), torch.ones(3), torch.tensor([1.0, 2.0, 0.0, float("inf")])):
        assert parity.difference(other, a) == float("inf")
    assert parity.difference(torch.tensor([1, 2]), torch.tensor([1, 3])) == float("inf")


def test_tensors_in_objects_are_moved():
    class Cache:
        def __init__(self):
            self.layers = [{"keys": torch.ones(2)}]

    cache = Cache()
    moved = parity.moved((cache, [torch.zeros(1)], 3), "tpu")
    assert moved[0].layers[0]["keys"].device.type == "tpu" and moved[1][0].device.type == "tpu" and moved[2] == 3
    assert cache.layers[0]["keys"].device.type == "cpu"
    assert len(parity.tensors_of(moved)) == 2


def test_arguments_that_cannot_be_copied():
    class Stubborn:
        def __init__(self):
            self.x = torch.ones(1)

        def __copy__(self):
            raise ValueError("no copies")

    inputs = parity.Inputs(torch.nn.Linear(1, 1), (Stubborn(),), {})
    assert "cannot be kept: ValueError: no copies" in parity.compare_module(inputs, False)["error"]


def test_a_curve_is_bounded_and_keeps_its_highest_point():
    curve = memory.Curve()
    for at in range(50_000):
        curve.add(at, 10**6 if at == 31_234 else at % 1000)
    assert len(curve.points) <= 2000
    assert max(curve.points, key=lambda point: point[1]) == (31_234, 10**6)
    assert [at for at, _ in curve.points] == sorted(at for at, _ in curve.points)


def test_whose_a_file_is():
    assert places.kind_of(torch.nn.__file__) == places.BACKEND
    assert places.kind_of(judge.__file__) == places.BACKEND
    assert places.kind_of(json.__file__) == places.LIBRARY and places.kind_of(pytest.__file__) == places.LIBRARY
    assert places.kind_of(__file__) == places.PROGRAM
    call, own = places.find_places(sys._getframe())
    assert own.file == __file__ and own == call and "find_places" in own.text


def test_lines_that_name_cuda(tmp_path):
    file = tmp_path / "x.py"
    file.write_text('x = y.cuda()\n# cuda\nz = "cuda:0"\nprint("no cuda here")\ntorch.cuda.synchronize()\n')
    assert [place.line for place in places.lines_naming_cuda([str(file)])] == [1, 3, 5]


def test_how_a_process_ended(tmp_path):
    crash = tmp_path / "crash"
    crash.write_text('Fatal Python error: Segmentation fault\n\n  File "train.py", line 7 in step\n')
    ended = command._death(subprocess.CompletedProcess([], -signal.SIGSEGV), crash)
    assert ended == {"how": "died", "message": "by SIGSEGV", "where": 'File "train.py", line 7 in step'}
    assert "memory is short" in command._death(subprocess.CompletedProcess([], -signal.SIGKILL), crash)["message"]


def test_verdicts():
    note, warning, error = (judge.Finding(severity, "x", "y") for severity in (judge.NOTE, judge.WARNING, judge.ERROR))
    assert judge.verdict([]) == judge.verdict([note]) == judge.READY
    assert judge.verdict([note, warning]) == judge.WARNINGS and judge.verdict([warning, error]) == judge.BROKEN
    assert judge.fails(judge.BROKEN, "error") and judge.fails(judge.WARNINGS, "warning")
    assert not judge.fails(judge.WARNINGS, "error") and not judge.fails(judge.READY, "warning")


def test_a_function_may_make_what_is_called(tmp_path):
    (tmp_path / "made.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(2, 3), (torch.ones(1, 2),)\n"
    )
    function = target.find(f"{tmp_path / 'made.py'}:make", [], None)
    calls = []
    function.run(3, lambda: calls.append(function.result))
    assert len(calls) == 3 and calls[0].shape == (1, 3) and calls[0].device.type == "tpu"
    with pytest.raises(target.TargetError, match="has no nothing"):
        target.find(f"{tmp_path / 'made.py'}:nothing", [], None).run(1, calls.clear)
