"""Lightning's Trainer and Fabric with accelerator="tpu"."""

import json

import pytest
from support import in_processes
from torch.utils.data import DataLoader, TensorDataset

import torch

lightning = pytest.importorskip("lightning")
from lightning.fabric import Fabric  # noqa: E402
from lightning.pytorch.callbacks import DeviceStatsMonitor, ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_fallback")


class Regression(lightning.LightningModule):
    """A few layers that keep each step's loss."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(dropout), torch.nn.Linear(16, 1))
        self.losses = []

    def training_step(self, batch, _):
        x, y = batch
        assert x.device.type == self.device.type
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, _):
        self.log("validation", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def data() -> DataLoader:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=generator)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)


def trainer(folder, **options) -> "lightning.Trainer":
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(**{"max_epochs": 2, "default_root_dir": folder, **quiet, **options})


def fit(folder, dropout=0.0, **options):
    lightning.seed_everything(0, verbose=False)
    model, made = Regression(dropout), trainer(folder, **options)
    made.fit(model, data(), data())
    return model, made


def test_trains_as_on_the_cpu(tmp_path):
    options = {"gradient_clip_val": 1.0, "accumulate_grad_batches": 2}
    expected, on_cpu = fit(tmp_path, accelerator="cpu", **options)
    got, on_tpu = fit(tmp_path, accelerator="tpu", **options)
    assert on_cpu.strategy.root_device.type == "cpu" and on_tpu.strategy.root_device.type == "tpu"
    assert got.losses == pytest.approx(expected.losses, abs=1e-5)
    assert float(on_tpu.callback_metrics["validation"]) == pytest.approx(
        float(on_cpu.callback_metrics["validation"]), abs=1e-5
    )


@pytest.mark.parametrize("options", [{}, {"accelerator": "auto"}, {"accelerator": "tpu", "devices": "auto"}])
def test_chosen_by_default(tmp_path, options):
    made = trainer(tmp_path, **options)
    assert made.accelerator.name() == "tpu" and made.strategy.root_device == torch.device("tpu", 0)


@pytest.mark.parametrize("devices", [1, "1", -1, [0], "0,"])
def test_devices(tmp_path, devices):
    made = trainer(tmp_path, accelerator="tpu", devices=devices, strategy="single_device" if devices == 1 else "auto")
    assert made.strategy.root_device.type == ("cpu" if devices == 1 else "tpu")


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-mixed", "64-true"])
def test_precisions(tmp_path, precision):
    expected, _ = fit(tmp_path, accelerator="tpu")
    got, made = fit(tmp_path, accelerator="tpu", precision=precision)
    dtype = {"bf16-true": torch.bfloat16, "64-true": torch.float64}.get(precision, torch.float32)
    assert next(got.parameters()).dtype == dtype and made.precision == precision
    assert got.losses != expected.losses or precision == "64-true"
    assert got.losses[0] == pytest.approx(expected.losses[0], rel=0.02)


def test_autocast_is_on(tmp_path):
    class Seen(Regression):
        def training_step(self, batch, index):
            assert self.net(batch[0]).dtype == torch.bfloat16
            return super().training_step(batch, index)

    trainer(tmp_path, accelerator="tpu", precision="bf16-mixed", max_steps=2).fit(Seen(), data())


def test_goes_on_from_a_checkpoint(tmp_path):
    whole, _ = fit(tmp_path, accelerator="tpu", max_epochs=4)
    keep = ModelCheckpoint(tmp_path, filename="half")
    fit(tmp_path, accelerator="tpu", callbacks=[keep])
    rest = Regression()
    trainer(tmp_path, accelerator="tpu", max_epochs=4).fit(rest, data(), ckpt_path=keep.best_model_path)
    assert rest.losses == whole.losses[len(whole.losses) // 2 :]
    on_cpu = Regression.load_from_checkpoint(keep.best_model_path, map_location="cpu")
    assert on_cpu.device.type == "cpu"


def test_isolated_random_state():
    from lightning.pytorch.utilities.seed import isolate_rng

    before = torch.tpu.get_rng_state()
    with isolate_rng():
        torch.rand(3, device="tpu")
    assert torch.equal(torch.tpu.get_rng_state(), before)


def test_device_statistics_are_logged(tmp_path):
    fit(tmp_path, accelerator="tpu", logger=CSVLogger(tmp_path), callbacks=[DeviceStatsMonitor()], log_every_n_steps=1)
    assert "allocated_bytes" in next(tmp_path.rglob("metrics.csv")).read_text()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"devices": [99]}, r"asks for tpu:\[99\], and there are tpu:0 to"),
        ({"devices": 99}, "and there are tpu:0 to"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, accelerator="tpu", **options)


def test_fabric_trains_as_on_the_cpu(tmp_path):
    def run(**options):
        lightning.seed_everything(0, verbose=False)
        fabric = Fabric(**options)
        fabric.launch()
        net = torch.nn.Linear(8, 1)
        net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
        losses = []
        for x, y in fabric.setup_dataloaders(data()):
            loss = torch.nn.functional.mse_loss(net(x), y)
            fabric.backward(loss)
            fabric.clip_gradients(net, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        fabric.save(tmp_path / "fabric.ckpt", {"net": net, "optimizer": optimizer})
        fabric.load(tmp_path / "fabric.ckpt", {"net": net, "optimizer": optimizer})
        return fabric.device.type, losses

    assert (cpu := run(accelerator="cpu"))[0] == "cpu"
    for options in ({}, {"accelerator": "tpu"}):
        device, losses = run(**options)
        assert device == "tpu" and losses == pytest.approx(cpu[1], abs=1e-5)
    _, losses = run(accelerator="tpu", precision="bf16-mixed")
    assert losses == pytest.approx(cpu[1], rel=0.02) and losses != cpu[1]


def test_separate_package(tmp_path):
    separate = pytest.importorskip("pytorch_lightning")
    assert separate.Trainer(default_root_dir=tmp_path, logger=False).accelerator.name() == "tpu"


SCRIPT = """
import json, sys
import lightning, torch
from lightning.fabric import Fabric
from test_lightning import fit

folder, accelerator, strategy = sys.argv[1:]
if strategy == "fabric":
    fabric = Fabric(accelerator=accelerator, devices=2, strategy="fsdp")
    fabric.launch()
    assert fabric.all_reduce(torch.ones(1, device=fabric.device), reduce_op="sum").item() == 2
    result = str(fabric.device)
else:
    model, trainer = fit(folder, accelerator=accelerator, devices=2, strategy=strategy)
    assert torch.tpu.counters()["fallbacks"] == {}
    trainer.save_checkpoint(folder + "/last.ckpt")
    result = [type(trainer.strategy).__name__, str(trainer.strategy.root_device)]
if torch.distributed.get_rank() == 0:
    print(json.dumps(result))
"""


def test_several_processes(tmp_path):
    def run(accelerator, strategy):
        out = in_processes(SCRIPT, 2, tmp_path, str(tmp_path), accelerator, strategy)
        return json.loads(out.splitlines()[-1])

    def trained():
        return Regression.load_from_checkpoint(tmp_path / "last.ckpt", map_location="cpu").parameters()

    assert run("cpu", "ddp") == ["DDPStrategy", "cpu"]
    expected = list(trained())
    for strategy, kind in (("auto", "DDPStrategy"), ("fsdp", "FSDPStrategy")):
        assert run("tpu", strategy) == [kind, "tpu:0"]
        for one, other in zip(trained(), expected, strict=True):
            torch.testing.assert_close(one, other)
    assert run("tpu", "fabric") == "tpu:0"
