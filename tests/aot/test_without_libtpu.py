"""What is said where libtpu is missing, and the parts that need none."""

import pytest

import torch
from torch_tpu.aot import compiler, report

aot = torch.tpu.aot


def test_a_missing_libtpu_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'ttpu\[libtpu\]'"):
        compiler.library_path()


def test_a_wrong_library_path_is_named(monkeypatch):
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/nonexistent/libtpu.so")
    with pytest.raises(ImportError, match=r"/nonexistent/libtpu\.so, which does not exist"):
        compiler.library_path()


def test_a_library_that_is_none(tmp_path):
    library = tmp_path / "libtpu.so"
    library.write_text("no library")
    with pytest.raises(aot.CompileError, match="cannot be loaded") as failed:
        compiler.Compiler(str(library)).topology("v5e:1x1")
    assert failed.value.code == 5


def test_a_plugin_that_cannot_compile_ahead_says_so():
    import torch_tpu

    path = torch_tpu.__path__[0] + "/lib/libttpu_soft.so"
    try:
        answer = compiler.Compiler(path).compile("garbage", "v5e:1x1")
    except aot.CompileError as error:
        assert error.code != 10  # refused, not died
    else:
        raise AssertionError(f"garbage was compiled: {answer}")


def test_memory_in_messages():
    message = "total memory required for HLO temporaries (48.00G) exceeds available HBM (15.75G). HLO module: main."
    error = aot.CompileError(8, message)
    assert (error.used_bytes, error.available_bytes) == (48 * 2**30, int(15.75 * 2**30))
    error = aot.CompileError(8, "Ran out of memory in memory space hbm. Used 20.5G of 15.75G hbm.")
    assert (error.used_bytes, error.available_bytes) == (int(20.5 * 2**30), int(15.75 * 2**30))
    assert aot.CompileError(3, message).used_bytes is None


def test_an_estimate_that_is_no_time_is_left_out():
    answer = {
        "device_kind": b"TPU v5 lite",
        "devices": b"4",
        "platform_version": b"x",
        **{f"memory:{part}": b"1024" for part in ("arguments", "outputs", "temporaries", "code", "alias")},
        "cost:flops": b"394e12",
        "cost:bytes accessed": b"819e9",
        "cost:optimal_seconds": b"-3.5",
        "chip:hbm_bytes": b"16909000000",
        "chip:flops_per_second": b"197000000000000",
        "chip:bytes_per_second": b"819000000000",
        "chip:link_bytes_per_second": b"45000000000",
        "chip:links": b"4",
        "collective:all-reduce": b"2 180000000000",
    }
    made = report.make_report(
        answer,
        topology="v5e:2x2",
        partitions=4,
        replicas=1,
        arguments=(),
        results=(),
        aliases={},
        seconds_to_compile=1.0,
        program="",
    )
    assert made.compiler_seconds is None
    assert made.roofline == aot.Roofline(compute=2.0, memory=1.0, links=1.0) and made.roofline.bound == "compute"
    assert made.collectives == {"all-reduce": aot.Collective(2, 180_000_000_000)}
    assert made.memory.total == 3 * 1024  # outputs take the place of arguments
