"""What feeds and measures a training: datasets, tokenizers, DataLoader over them, torchmetrics."""

import pytest
from support import assert_same, assert_values
from tiny_models import tiny_tokenizer

import torch

pytestmark = pytest.mark.usefixtures("no_fallback")


def test_tokenizer_output_moves():
    pytest.importorskip("transformers")
    batch = tiny_tokenizer()(["hello world", "the quick brown fox"], padding=True, return_tensors="pt").to("tpu")
    assert batch["input_ids"].device.type == batch["attention_mask"].device.type == "tpu"
    assert_values(batch["attention_mask"], [[1, 1, 0, 0], [1, 1, 1, 1]])


def test_dataset_from_memory_gives_tensors_on_tpu():
    datasets = pytest.importorskip("datasets")
    rows = {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [0, 1, 2]}
    data = datasets.Dataset.from_dict(rows).with_format("torch", device="tpu")
    assert_values(data[1]["x"], [3.0, 4.0])
    assert_values(data[:]["y"], [0, 1, 2])
    doubled = data.map(lambda batch: {"x": batch["x"] * 2}, batched=True, new_fingerprint="doubled")
    assert_values(doubled[2]["x"], [10.0, 12.0])


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_over_a_dataset_with_pinned_memory(workers):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": [[float(i)] * 3 for i in range(10)]}).with_format("torch")
    batches = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    seen = []
    for batch in batches:
        assert batch["x"].is_pinned()
        seen.append(batch["x"].to("tpu", non_blocking=True))
    assert_values(torch.cat(seen)[:, 0], [float(i) for i in range(10)])


def test_metrics():
    torchmetrics = pytest.importorskip("torchmetrics")
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 4, generator=generator).softmax(1)
    labels = torch.randint(0, 4, (50,), generator=generator)
    several = torchmetrics.MetricCollection(
        {
            "accuracy": torchmetrics.Accuracy("multiclass", num_classes=4),
            "f1": torchmetrics.F1Score("multiclass", num_classes=4, average="macro"),
            "auroc": torchmetrics.AUROC("multiclass", num_classes=4),
            "binned": torchmetrics.AveragePrecision("multiclass", num_classes=4, thresholds=20),
            "confusion": torchmetrics.ConfusionMatrix("multiclass", num_classes=4),
            "error": torchmetrics.CalibrationError("multiclass", num_classes=4),
        }
    )

    def measure(device):
        metrics = several.clone().to(device)
        for part in range(0, 50, 25):
            metrics.update(scores[part : part + 25].to(device), labels[part : part + 25].to(device))
        return metrics.compute()

    expected = measure("cpu")
    for name, value in measure("tpu").items():
        assert_same(value, expected[name])


@pytest.mark.parametrize(
    "metric", ["MeanSquaredError", "PearsonCorrCoef", "SpearmanCorrCoef", "R2Score", "KLDivergence"]
)
def test_metrics_of_numbers(metric):
    torchmetrics = pytest.importorskip("torchmetrics")
    x, y = torch.rand(2, 20, 3, generator=torch.Generator().manual_seed(0)).unbind()
    if metric != "KLDivergence":
        x, y = x[:, 0], y[:, 0]
    make = getattr(torchmetrics, metric)
    assert_same(make().to("tpu")(x.to("tpu"), y.to("tpu")), make()(x, y), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("metric", ["StructuralSimilarityIndexMeasure", "PeakSignalNoiseRatio", "TotalVariation"])
def test_metrics_of_images(metric):
    torchmetrics = pytest.importorskip("torchmetrics")
    make = getattr(torchmetrics.image, metric)
    images = list(torch.rand(2, 2, 3, 32, 32, generator=torch.Generator().manual_seed(0)).unbind())
    options = {} if metric == "TotalVariation" else {"data_range": 1.0}
    arguments = images[:1] if metric == "TotalVariation" else images
    expected = make(**options)(*arguments)
    assert_same(make(**options).to("tpu")(*(x.to("tpu") for x in arguments)), expected, atol=1e-4, rtol=1e-5)
