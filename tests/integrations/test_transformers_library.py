"""Transformers around its models: pipelines, device_map, the Trainer. The models themselves are in tests/hf."""

import json
import os

import pytest
from support import in_fresh_python, in_processes
from tiny_models import devices, tiny_llama, tiny_tokenizer, tokens

import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

pytestmark = pytest.mark.usefixtures("no_fallback")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and its tokenizer, saved."""
    folder = tmp_path_factory.mktemp("model")
    tiny_llama().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


# ---- pipelines ---------------------------------------------------------------------------------------------------


def test_pipeline_generates_what_the_cpu_does(folder):
    greedy = {"max_new_tokens": 8, "do_sample": False}
    texts = ["hello world", "the quick brown fox"]
    expected = transformers.pipeline("text-generation", model=folder, device="cpu")(texts, **greedy)
    on_tpu = transformers.pipeline("text-generation", model=folder, device="tpu")
    assert on_tpu.model.device.type == "tpu"
    assert on_tpu(texts, **greedy) == expected
    assert on_tpu(texts, batch_size=2, **greedy)[1] == expected[1]


def test_classification_pipeline():
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config).eval()
    make = lambda device: transformers.pipeline(  # noqa: E731 - the same twice
        "text-classification", model=model, tokenizer=tiny_tokenizer(), device=device
    )
    expected = make("cpu")(["hello world", "a fox"])
    for got, wanted in zip(make("tpu")(["hello world", "a fox"]), expected, strict=True):
        assert got["label"] == wanted["label"] and got["score"] == pytest.approx(wanted["score"], abs=1e-6)


@pytest.mark.parametrize("device", [None, 0, "tpu", "tpu:0", torch.device("tpu")])
def test_pipeline_on_tpu(folder, device):
    pipe = transformers.pipeline("text-generation", model=folder, device=device)
    assert pipe.device.type == pipe.model.device.type == "tpu"


@pytest.mark.parametrize("device", ["cpu", -1, torch.device("cpu")])
def test_pipeline_on_the_cpu(folder, device):
    pipe = transformers.pipeline("text-generation", model=folder, device=device)
    assert pipe.device.type == pipe.model.device.type == "cpu"


def test_pipeline_takes_a_placed_model_where_it_is(folder):
    placed = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map="auto")
    pipe = transformers.pipeline("text-generation", model=placed, tokenizer=tiny_tokenizer())
    assert pipe.device.type == pipe.model.device.type == "tpu"
    assert pipe("hello", max_new_tokens=2, do_sample=False)[0]["generated_text"]
    moved = transformers.pipeline("text-generation", model=tiny_llama().to("tpu"), tokenizer=tiny_tokenizer())
    assert moved.device.type == moved.model.device.type == "tpu"


# ---- device_map --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device_map", ["tpu", "tpu:0", "auto", "balanced", "sequential", {"": "tpu"}, {"": 0}, 0])
def test_device_map(folder, device_map):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map=device_map)
    assert devices(model) == {"tpu"}
    assert model.lm_head.weight is model.model.embed_tokens.weight
    torch.testing.assert_close(model(tokens().to("tpu")).logits.cpu(), tiny_llama()(tokens()).logits)


def test_device_map_cpu(folder):
    assert devices(transformers.AutoModelForCausalLM.from_pretrained(folder, device_map="cpu")) == {"cpu"}


@pytest.mark.parametrize("elsewhere", ["cpu", "disk"])
def test_layers_kept_elsewhere(folder, tmp_path, elsewhere):
    placed = dict.fromkeys(["model.embed_tokens", "lm_head", "model.layers.0", "model.norm", "model.rotary_emb"], "tpu")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, device_map={**placed, "model.layers.1": elsewhere}, offload_folder=tmp_path
    )
    torch.testing.assert_close(model(tokens().to("tpu")).logits.cpu(), tiny_llama()(tokens()).logits)


def test_split_over_several_devices(folder):
    code = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import torch, transformers
from tiny_models import tiny_llama, tokens
model = transformers.AutoModelForCausalLM.from_pretrained({folder!r}, device_map="balanced")
x = tokens()
torch.testing.assert_close(model(x.to("tpu")).logits.cpu(), tiny_llama()(x).logits)
model.generate(x.to("tpu"), max_new_tokens=2, do_sample=False)
print(*sorted({{str(parameter.device) for parameter in model.parameters()}}))
"""
    assert in_fresh_python(code, TTPU_TOPOLOGY="v5e:2x2").stdout.split() == ["tpu:0", "tpu:1", "tpu:2"]


def test_bitsandbytes_without_its_package_says_so(folder, monkeypatch):
    from transformers.quantizers import quantizer_bnb_4bit

    monkeypatch.setattr(quantizer_bnb_4bit, "is_bitsandbytes_available", lambda *_: False)
    with pytest.raises(ImportError, match="requires bitsandbytes"):
        transformers.AutoModelForCausalLM.from_pretrained(
            folder, device_map="tpu", quantization_config=transformers.BitsAndBytesConfig(load_in_4bit=True)
        )


# ---- Trainer -----------------------------------------------------------------------------------------------------


class Texts(torch.utils.data.Dataset):
    """Rows of tokens that are their own labels."""

    def __init__(self):
        self.rows = tokens(48, 12)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def train(folder, resume=None, steps=6, **options) -> tuple:
    """A Trainer after its steps, and the loss of each."""
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=steps,
        save_steps=3,
        logging_steps=1,
        learning_rate=1e-3,
        report_to=[],
        disable_tqdm=True,
        **options,
    )
    data = Texts()
    trainer = transformers.Trainer(tiny_llama(attention_dropout=0.2), arguments, train_dataset=data, eval_dataset=data)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("options", [{}, {"bf16": True}, {"optim": "adafactor", "gradient_checkpointing": True}])
def test_trainer_resumes_with_the_same_numbers(tmp_path, options):
    trainer, losses = train(tmp_path, **options)
    assert trainer.args.device.type == trainer.accelerator.device.type == trainer.model.device.type == "tpu"
    assert len(losses) == 6 and losses[-1] < losses[0]
    checkpoint = os.path.join(tmp_path, "checkpoint-3")
    resumed, again = train(tmp_path, checkpoint, **options)
    assert again[3:] == losses[3:]  # attention dropout drew the same numbers
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


def test_trainer_evaluates_and_predicts(tmp_path):
    trainer, _ = train(tmp_path, steps=1, bf16=True, bf16_full_eval=True)
    assert 0 < trainer.evaluate()["eval_loss"] < 10
    assert trainer.predict(Texts()).predictions.shape == (48, 12, trainer.model.config.vocab_size)


def test_trainer_compiled_is_the_eager_one(tmp_path):
    _, eager = train(tmp_path / "eager", steps=3)
    _, compiled = train(tmp_path / "compiled", steps=3, torch_compile=True)
    assert compiled == pytest.approx(eager, abs=1e-5)


def test_trainer_on_the_cpu(tmp_path):
    trainer, losses = train(tmp_path, steps=3, use_cpu=True)
    assert trainer.args.device.type == trainer.accelerator.device.type == trainer.model.device.type == "cpu"
    states = torch.load(tmp_path / "checkpoint-3" / "rng_state.pth", weights_only=False)
    assert "tpu" not in states
    _, on_tpu = train(tmp_path / "tpu", steps=1)
    assert on_tpu[0] == pytest.approx(losses[0], rel=0.02)  # dropout draws other numbers


def test_trainer_of_the_cpu_resumes_on_tpu(tmp_path):
    train(tmp_path, steps=3, use_cpu=True)
    _, losses = train(tmp_path, os.path.join(tmp_path, "checkpoint-3"))
    assert len(losses) == 6


# ---- several processes -------------------------------------------------------------------------------------------

SCRIPT = """
import json, os, sys
import torch, torch.distributed, transformers
from tiny_models import tiny_llama, tokens

folder, several = sys.argv[1], int(sys.argv[2])
ids = tokens(32, 12)
data = [{"input_ids": i, "labels": i} for i in ids]

def train(name, resume=None, **options):
    arguments = transformers.TrainingArguments(
        f"{folder}/{name}", per_device_train_batch_size=8 // several, logging_steps=1, report_to=[], learning_rate=1e-2,
        max_steps=4, save_steps=2, disable_tqdm=True, seed=0, **options
    )
    trainer = transformers.Trainer(model=tiny_llama(), args=arguments, train_dataset=data)
    trainer.train(resume_from_checkpoint=resume and f"{folder}/{name}/{resume}")
    assert arguments.world_size == several and arguments.device.type == "tpu"
    losses[name] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

losses = {}
train("plain")
train("plain", resume="checkpoint-2")
losses["resumed"] = losses.pop("plain")
train("plain")
train("mixed", bf16=True, gradient_checkpointing=True)
if several > 1:
    train("compiled", torch_compile=True)
    train("sharded", fsdp=True, fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]})
    parts = transformers.LlamaForCausalLM.from_pretrained(sys.argv[3], tp_plan="auto")
    x = ids[:1].to(parts.device)
    losses["generated"] = parts.generate(x, max_new_tokens=6, do_sample=False).tolist()
if torch.distributed.is_initialized():
    assert torch.distributed.get_backend() == "tpu_dist"
    torch.distributed.destroy_process_group()
assert torch.tpu.counters()["fallbacks"] == {}
if int(os.environ["RANK"]) == 0:
    print(json.dumps(losses))
"""


def test_trainer_in_several_processes(tmp_path):
    """Two processes with half of each batch learn what one learns with all of it; a model in two parts generates."""
    model = tiny_llama(tie_word_embeddings=False)
    model.save_pretrained(tmp_path / "model")
    alone, both = (
        json.loads(
            in_processes(SCRIPT, n, tmp_path, str(tmp_path / str(n)), str(n), str(tmp_path / "model")).splitlines()[-1]
        )
        for n in (1, 2)
    )
    assert len(alone["plain"]) == 4 and alone["plain"][-1] < alone["plain"][0]
    for name in ("plain", "resumed", "compiled", "sharded"):
        assert both[name] == pytest.approx(alone["plain"], abs=1e-3), name
    assert both["mixed"] == pytest.approx(alone["mixed"], rel=0.02)
    assert both["generated"] == model.generate(tokens(32, 12)[:1], max_new_tokens=6, do_sample=False).tolist()
