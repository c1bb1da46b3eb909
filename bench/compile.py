"""torch.compile on tpu beside inductor on the CPU: the speed of compiled models, and how long compiling takes.

Models of four to six layers from Transformers with random weights, in float32 and bfloat16: inference, and training
up to the gradients. Targets: 1.0 in float32 and 1.4 in bfloat16 as geometric means, and a twentieth of the time
to compile. Both compilers get their graphs from Dynamo, which reads the model's Python code: its time is measured by
the backend "eager", which does nothing with a graph, and the time behind it is compared, too.
`python bench/compile.py gpt2 float32` measures some of it.
"""

import copy
import statistics
import sys
import time
import warnings
from typing import NamedTuple

import torch._functorch.config
import torch._inductor.config
import transformers

import torch
import torch_tpu  # noqa: F401 - where autoloading is switched off


def tokens(batch: int, length: int, vocabulary: int = 1000) -> torch.Tensor:
    """Random token numbers."""
    return torch.randint(vocabulary, (batch, length))


def gpt2():
    config = transformers.GPT2Config(vocab_size=1000, n_positions=256, n_embd=384, n_layer=6, n_head=6)
    ids = tokens(2, 128)
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def llama():
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=2,
    )
    ids = tokens(2, 128)
    return transformers.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids, "use_cache": False}


def bert():
    config = transformers.BertConfig(
        vocab_size=1000, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536
    )
    return transformers.BertForMaskedLM(config), {"input_ids": tokens(4, 128), "labels": tokens(4, 128)}


def t5():
    config = transformers.T5Config(
        vocab_size=1000, d_model=256, d_kv=32, d_ff=1024, num_layers=4, num_heads=8, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config), {"input_ids": tokens(2, 96), "labels": tokens(2, 48)}


def vit():
    config = transformers.ViTConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=96,
        patch_size=8,
        num_labels=10,
    )
    return transformers.ViTForImageClassification(config), images(96)


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10
    )
    return transformers.ResNetForImageClassification(config), images(96)


def images(size: int) -> dict[str, torch.Tensor]:
    """Four images and their classes."""
    return {"pixel_values": torch.rand(4, 3, size, size), "labels": torch.randint(10, (4,))}


MODELS = {"gpt2": gpt2, "llama": llama, "bert": bert, "t5": t5, "vit": vit, "resnet": resnet}


class Side:
    """A compiled model on one device."""

    def __init__(self, model: torch.nn.Module, inputs: dict, device: str, dtype: torch.dtype, **options: str):
        self.device = device
        self.model = copy.deepcopy(model).to(device, dtype)
        self.inputs = {
            name: x.to(device, dtype if x.is_floating_point() else x.dtype) if isinstance(x, torch.Tensor) else x
            for name, x in inputs.items()
        }
        self.compiled = torch.compile(self.model, **options)

    def infer(self) -> None:
        with torch.no_grad():
            self.compiled(**self.inputs).loss.item()

    def train(self) -> None:
        loss = self.compiled(**self.inputs).loss
        loss.backward()
        for parameter in self.model.parameters():
            parameter.grad = None
        loss.item()
        if self.device == "tpu":
            torch.tpu.synchronize()


def seconds_of(function) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class Measured(NamedTuple):
    """Milliseconds of a call on the CPU and on tpu, and seconds of the first calls, which compile."""

    cpu: float
    tpu: float
    cpu_first: float
    tpu_first: float
    dynamo: float  # of a first call that only has the model read

    @property
    def speed(self) -> float:
        return self.cpu / self.tpu

    @property
    def ratio(self) -> float:
        return self.cpu_first / self.tpu_first

    @property
    def ratio_behind(self) -> float:
        """The same without Dynamo's part; at least 10 ms remain."""
        return (self.cpu_first - self.dynamo) / max(self.tpu_first - self.dynamo, 0.01)


def measure(name: str, dtype: torch.dtype, kind: str, rounds: int = 9) -> Measured:
    """Compile and run one model on both devices."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = MODELS[name]()
    model.eval()  # without dropout, whose numbers differ
    sides = [Side(model, inputs, device, dtype) for device in ("cpu", "tpu")]
    calls = [side.infer if kind == "infer" else side.train for side in sides]
    read = Side(model, inputs, "tpu", dtype, backend="eager")
    for _ in range(2):  # the first time imports and caches what all share
        torch._dynamo.reset()
        dynamo = seconds_of(read.infer if kind == "infer" else read.train)
    torch._dynamo.reset()
    first = [seconds_of(call) for call in calls]
    times = [[], []]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            found.append(seconds_of(call))
    cpu, tpu = (statistics.median(found[2:]) * 1e3 for found in times)
    return Measured(cpu, tpu, *first, dynamo)


def main(arguments: list[str]) -> int:
    """Print the table; the exit status says whether the targets were met."""
    warnings.simplefilter("ignore")
    torch._inductor.config.force_disable_caches = True  # the first call is to compile
    torch._functorch.config.enable_autograd_cache = False
    print(f"{torch.get_num_threads()} threads; milliseconds of a call, and seconds until the first was done")
    header = (
        f"{'model':<10}{'dtype':<10}{'':<7}{'inductor':>10}{'tpu':>9}{'speed':>8}{'inductor':>10}{'tpu':>7}{'ratio':>7}"
        f"{'Dynamo':>9}{'behind':>8}"
    )
    print(header)
    names = [a for a in arguments if a in MODELS] or list(MODELS)
    missed = 0
    for dtype, target in ((torch.float32, 1.0), (torch.bfloat16, 1.4)):
        short = str(dtype).removeprefix("torch.")
        if set(arguments) & {"float32", "bfloat16"} and short not in arguments:
            continue
        found = []
        for name in names:
            for kind in ("infer", "train"):
                m = measure(name, dtype, kind)
                found.append(m)
                print(
                    f"{name:<10}{short:<10}{kind:<7}{m.cpu:>10.2f}{m.tpu:>9.2f}{m.speed:>8.2f}"
                    f"{m.cpu_first:>10.1f}{m.tpu_first:>7.1f}{m.ratio:>7.1f}{m.dynamo:>9.1f}{m.ratio_behind:>8.1f}",
                    flush=True,
                )
        speed = statistics.geometric_mean(m.speed for m in found)
        ratio = statistics.geometric_mean(m.ratio for m in found)
        behind = statistics.geometric_mean(m.ratio_behind for m in found)
        missed += speed < target or ratio < 20
        print(
            f"geometric mean, {short}: speed {speed:.2f} (target {target}), "
            f"time to compile 1/{ratio:.1f} (target 1/20), 1/{behind:.1f} behind Dynamo"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
