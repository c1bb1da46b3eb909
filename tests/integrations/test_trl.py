"""TRL on tpu: SFT, DPO and GRPO with the CPU's losses."""

import pytest
from tiny_models import WORDS, tiny_llama, tiny_tokenizer

import torch

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.usefixtures("no_fallback")

TEXTS = ["the quick brown fox", "hello world said a fox", "the lazy dog jumps over", "hello tpu"] * 4
PAIRS = {
    "prompt": ["the quick", "hello"] * 4,
    "chosen": [" brown fox", " world"] * 4,
    "rejected": [" dog", " lazy"] * 4,
}
BATCH = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_llama().save_pretrained(folder)
    return folder


@pytest.fixture
def losses(folder, tmp_path):
    """Runs a trainer of TRL for three steps on a device, and gives its losses."""

    def run(trainer, config, data, on_cpu, **options):
        arguments = {
            "output_dir": str(tmp_path),
            "per_device_train_batch_size": BATCH,
            "max_steps": 3,
            "logging_steps": 1,
            "learning_rate": 1e-3,
            "report_to": [],
            "disable_tqdm": True,
            "save_strategy": "no",
            "use_cpu": on_cpu,
            "bf16": False,
        }
        model = type(tiny_llama()).from_pretrained(folder)
        made = trainer(
            model,
            args=config(**{**arguments, **options.pop("arguments", {})}),
            train_dataset=datasets.Dataset.from_dict(data),
            processing_class=tiny_tokenizer(),
            **options,
        )
        assert made.accelerator.device.type == ("cpu" if on_cpu else "tpu")
        made.train()
        return [entry["loss"] for entry in made.state.log_history if "loss" in entry]

    return run


def assert_same_losses(run, tolerance, *arguments, **options):
    expected, got = (run(*arguments, on_cpu, **options) for on_cpu in (True, False))
    assert len(expected) == 3 and any(expected)
    assert got == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("bf16", [False, True])
def test_sft(losses, bf16):
    arguments = {"bf16": bf16, "max_length": 16}
    assert_same_losses(
        losses, 2e-3 if bf16 else 1e-5, trl.SFTTrainer, trl.SFTConfig, {"text": TEXTS}, arguments=arguments
    )


def test_sft_packed_with_lora(losses):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    arguments = {"packing": True, "max_length": 16}
    adapter = peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
    assert_same_losses(
        losses, 1e-5, trl.SFTTrainer, trl.SFTConfig, {"text": TEXTS}, arguments=arguments, peft_config=adapter
    )


def test_dpo(losses):
    assert_same_losses(losses, 1e-5, trl.DPOTrainer, trl.DPOConfig, PAIRS, arguments={"max_length": 16})


def length_of(completions, **_) -> list[float]:
    """A reward that prefers short words."""
    return [float(-len(text)) for text in completions]


def test_grpo_on_given_completions(losses):
    """The completions are given, because each device draws its own."""
    vocabulary = tiny_tokenizer()

    def rollout(prompts, *_):
        given = [[4 + (3 * row + column) % 10 for column in range(row % 3 + 2)] for row in range(len(prompts))]
        return {
            "prompt_ids": [vocabulary(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": given,
            "logprobs": [[-2.0] * len(row) for row in given],
        }

    assert_same_losses(
        losses,
        1e-4,
        trl.GRPOTrainer,
        trl.GRPOConfig,
        {"prompt": PAIRS["prompt"]},
        reward_funcs=length_of,
        rollout_func=rollout,
        arguments={"num_generations": BATCH, "max_completion_length": 6, "beta": 0.04},
    )


def test_grpo_samples_on_the_device(losses):
    seen = []

    def reward(completions, **_):
        seen.extend(completions)
        return length_of(completions)

    got = losses(
        trl.GRPOTrainer,
        trl.GRPOConfig,
        {"prompt": PAIRS["prompt"]},
        False,
        reward_funcs=reward,
        arguments={"num_generations": BATCH, "max_completion_length": 6},
    )
    assert len(got) == 3 and len(set(seen)) > 3
    assert any(word in text for text in seen for word in WORDS)
