"""Tiny whole models through the TPU compiler: one chip, and cut over four. examples/aot_models.py has large ones."""

import models
import pytest
import transformers

import torch
from torch_tpu.aot import Compiler

aot = torch.tpu.aot
CHIP, FOUR = "v5e:1x1", "v5e:2x2"


@pytest.fixture(scope="module")
def shared(libtpu):
    made = Compiler()
    yield made
    made.close()


def gpt2() -> aot.Program:
    return aot.capture(models.gpt2().eval(), (), {"input_ids": models.tokens(4, 8)})


def resnet() -> aot.Program:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=4)
    model = transformers.ResNetForImageClassification(config).eval()
    return aot.capture(model, (), {"pixel_values": torch.zeros(4, 3, 32, 32)})


def llama_training() -> aot.Program:
    model = aot.without_data(models.llama())
    optimizer = torch.optim.AdamW(model.parameters())

    def step(input_ids):
        optimizer.zero_grad()
        # given, because Transformers reads its position ids on the host to make one
        mask = torch.ones(input_ids.shape[1], input_ids.shape[1], dtype=torch.bool, device="tpu").tril()[None, None]
        loss = model(input_ids=input_ids, attention_mask=mask, labels=input_ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return loss

    return aot.capture(step, (models.tokens(4, 8),), state=(model, optimizer))


CAPTURES = {"gpt2": gpt2, "resnet": resnet, "llama_training": llama_training}


@pytest.mark.parametrize("name", CAPTURES)
def test_captured_without_composites_or_unnamed_arguments(name):
    program = CAPTURES[name]()
    assert program.operators > 20
    assert "ttpu." not in program.text()
    unnamed = [v for v in program.arguments if v.name.startswith("constant") and len(v.dims) > 1]
    assert unnamed == []


def test_a_training_step_updates_all_of_its_state():
    program = llama_training()
    updated = {program.arguments[at].name for at in program.aliases}
    parameters = [n for n, _ in models.llama().named_parameters()]
    assert {*parameters, *(f"exp_avg.{n}" for n in parameters), *(f"exp_avg_sq.{n}" for n in parameters)} <= updated


@pytest.mark.parametrize("name", CAPTURES)
def test_compiles_for_one_chip_and_for_four(shared, name):
    program = CAPTURES[name]()
    one = aot.compile(program, topology=CHIP, compiler=shared)
    assert one.memory.arguments > 0 and one.collectives == {}
    four = aot.compile(program, topology=FOUR, mesh={"data": 4}, shardings=aot.data_parallel(), compiler=shared)
    assert four.partitions == 4 and four.memory.arguments <= one.memory.arguments
    if name == "llama_training":
        assert four.collectives["all-reduce"].count >= 1  # of gradients
        assert one.memory.alias > 0.9 * sum(p.numel() * 4 * 3 for p in models.llama().parameters())


def test_a_llama_cut_along_its_features(shared):
    columns = [f"*.{name}_proj" for name in ("q", "k", "v", "gate", "up")]
    shardings = aot.tensor_parallel(columns, ["*.o_proj", "*.down_proj"])
    made = aot.compile(llama_training(), topology=FOUR, mesh={"model": 2}, shardings=shardings, compiler=shared)
    assert made.partitions == 2 and made.collectives["all-reduce"].count >= 2
