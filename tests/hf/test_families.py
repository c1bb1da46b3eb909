"""One model of each family through what the sweep does: see sweep.py, which runs all of them."""

import importlib
import importlib.util
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import trial
import workers
from sweep import DTYPES, outcome, summary

import torch

# Beside those of tests/test_models.py.
FAMILIES = {
    "text decoder": ("transformers", "smollm3"),
    "text encoder": ("transformers", "modernbert"),
    "encoder and decoder": ("transformers", "bart"),
    "mixture of experts": ("transformers", "mixtral"),
    "state space": ("transformers", "mamba"),
    "vision": ("transformers", "dinov2"),
    "convolutions": ("transformers", "convnext"),
    "detection": ("transformers", "detr"),
    "audio": ("transformers", "hubert"),
    "image and text": ("transformers", "qwen2_5_vl"),
    "time series": ("transformers", "patchtst"),
    "timm": ("timm", "efficientnet"),
    "diffusion": ("diffusers", "UNet2DConditionModel"),
    "diffusion pipeline": ("diffusers", "StableDiffusionPipeline with DDIM"),
    "sentence embeddings": ("sentence_transformers", "loss MultipleNegativesRankingLoss"),
}
HALF = "text decoder", "vision", "audio"


def run(family: str, dtype: str) -> dict:
    library, name = FAMILIES[family]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    case = importlib.import_module(f"zoo_{library}").make_case(name)
    return trial.run_trial(case, DTYPES[dtype])


def check(result: dict) -> None:
    assert outcome(result) == "agrees", summary(result)
    assert result["steps"]["forward"] == "ok" and result["steps"]["fallbacks"] == "ok"


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family):
    check(run(family, "f32"))


@pytest.mark.parametrize("family", HALF)
def test_family_in_bf16(family):
    check(run(family, "bf16"))


def test_a_wrong_result_is_noticed():
    """The sweep's comparison fails for one element that is off, and for a gradient that is missing."""
    expected = {"a": torch.randn(4, 4), "b": torch.randn(3)}
    trial.compare(expected, expected, list)
    wrong = {**expected, "b": expected["b"] + torch.tensor([0.0, 1e-2, 0.0])}
    with pytest.raises(trial.Disagreement, match=r"b: differs by 0\.01"):
        trial.compare(wrong, expected, list)
    with pytest.raises(trial.Disagreement, match="only on one device"):
        trial.compare({"a": expected["a"]}, expected, list)
    with pytest.raises(trial.Disagreement, match="NaN"):
        trial.compare({**expected, "a": expected["a"] * float("nan")}, expected, list)


def test_workers_report_crashes_and_hangs():
    import os
    import signal
    import time

    def work(item: str) -> dict:
        if item == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if item == "hang":
            time.sleep(60)
        while item == "spin":
            pass
        if item == "memory":
            bytearray(8 << 30)
        return {"value": item}

    results = dict(workers.run_all(["hang", "fine", "crash", "spin", "memory"], work, 2, 1.0, 4 << 30))
    assert results["fine"] == {"value": "fine"}
    assert "SIGKILL" in results["crash"]["crash"]
    assert results["spin"]["crash"] == "not done after 1 s of processor time"
    assert results["hang"]["crash"] == f"not done after {workers.WAIT} s"
    assert "MemoryError" in results["memory"]["crash"]
