"""Every model type that the installed Transformers registers, as a case of the sweep."""

import copy
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import testers
import transformers
from batches import Unfit, make_batch, make_labels
from exceptions_transformers import EXCEPTIONS
from shrink import PLANS, shrink
from torchvision_operators import define_torchvision_operators
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.utils import logging
from trial import Case, describe

import torch

# The heads, those that say most about a type first: what it is known for, and with a loss of its own.
HEADS = {
    "CAUSAL_LM": "causal",
    "SEQ_TO_SEQ_CAUSAL_LM": "sequence to sequence",
    "IMAGE_TEXT_TO_TEXT": "multimodal",
    "MULTIMODAL_LM": "multimodal",
    "SPEECH_SEQ_2_SEQ": "sequence to sequence",
    "CTC": "ctc",
    "MASKED_LM": "masked",
    "OBJECT_DETECTION": "outputs",
    "ZERO_SHOT_OBJECT_DETECTION": "outputs",
    "UNIVERSAL_SEGMENTATION": "outputs",
    "INSTANCE_SEGMENTATION": "outputs",
    "SEMANTIC_SEGMENTATION": "outputs",
    "IMAGE_CLASSIFICATION": "classes",
    "VIDEO_CLASSIFICATION": "classes",
    "AUDIO_CLASSIFICATION": "classes",
    "DEPTH_ESTIMATION": "outputs",
    "": "outputs",
}
MOST_PARAMETERS = 40_000_000
COMMON = (
    "LlamaForCausalLM",
    "BertLMHeadModel",
    "ViTForImageClassification",
    "WhisperForConditionalGeneration",
    "T5ForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "MixtralForCausalLM",
    "DetrForObjectDetection",
)


def preload() -> None:
    """Import what most models import, once for all workers: it takes longer than running a small model."""
    define_torchvision_operators()
    testers.preload()
    for name in COMMON:
        getattr(transformers, name)


def names() -> list[str]:
    """Types that have a head of some kind first, then those that are parts of others."""
    whole = {name for _, mapping in mappings() if mapping is not modeling_auto.MODEL_MAPPING_NAMES for name in mapping}
    return sorted(CONFIG_MAPPING_NAMES, key=lambda name: name not in whole)


def mappings() -> Iterator[tuple[str, dict[str, Any]]]:
    """The kinds of loss and the classes that Transformers lists for them, in the order of preference."""
    listed = {name: kind for name, kind in HEADS.items()}
    for name in vars(modeling_auto):
        if name.endswith("_MAPPING_NAMES") and name.startswith("MODEL_FOR_"):
            listed.setdefault(name[len("MODEL_FOR_") : -len("_MAPPING_NAMES")], "outputs")
    for name, kind in listed.items():
        yield kind, getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES" if name else "MODEL_MAPPING_NAMES")


def heads(model_type: str) -> list[tuple[str, str]]:
    """The classes of a type with the kind of loss each has, best first."""
    found = []
    for kind, mapping in mappings():
        classes = mapping.get(model_type, ())
        for name in [classes] if isinstance(classes, str) else classes:
            if name not in [other for other, _ in found]:
                found.append((name, kind))
    return found or [(name, "outputs") for name in unlisted(CONFIG_MAPPING[model_type])]


def unlisted(config_class: type) -> list[str]:
    """The models made from a configuration that no list has: parts of other models, shortest names first."""
    module = importlib.import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
    found = []
    for name, member in vars(module).items():
        if isinstance(member, type) and issubclass(member, transformers.PreTrainedModel):
            own = member.config_class is config_class and member.__module__ == module.__name__
            if own and "forward" in vars(member):
                found.append(name)
    return sorted(found, key=len)


def find_class(name: str, config_class: type) -> type[torch.nn.Module]:
    if hasattr(transformers, name):
        return getattr(transformers, name)
    return getattr(importlib.import_module(config_class.__module__.replace(".configuration_", ".modeling_")), name)


def build(model_type: str, class_name: str, plan: str, exception: dict[str, Any]) -> torch.nn.Module:
    """A small model of a type with random weights."""
    config = shrink(CONFIG_MAPPING[model_type], PLANS[plan](), exception.get("config"))
    model_class = find_class(class_name, CONFIG_MAPPING[model_type])
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"{size:,} parameters even when shrunk")
    torch.manual_seed(0)
    return model_class(config)


def try_on_cpu(model: torch.nn.Module, batch: dict[str, Any], labels: Any) -> Case:
    """A case, if the model runs on the CPU."""
    probe = copy.deepcopy(model)  # some keep tensors from their first call, which would stay on the CPU later
    with torch.no_grad():
        if labels is not None:
            try:
                probe(**batch, labels=labels)
            except Exception:
                labels = None
        if labels is None:
            probe(**batch)
    return Case(model, batch, labels, generates=getattr(model, "can_generate", bool)())


def find_inputs(model: torch.nn.Module, kind: str, changes: dict[str, Any] | None) -> tuple[Case, int]:
    """A case with the first variant of the inputs that runs on the CPU, and which that is; else the first error."""
    model.eval()
    variant, variants, first = 0, 1, None
    while variant < variants:
        try:
            batch, variants = make_batch(model, variant, changes)
            return try_on_cpu(model, batch, make_labels(model, kind, batch)), variant
        except Unfit as error:
            variants, first = error.args[0], first or error.__cause__
        except Exception as error:
            first = first or error
        variant += 1
    raise first


def with_notes(case: Case, plan: str, variant: int) -> Case:
    """The same case with what was built."""
    case.notes = {
        "class": type(case.model).__name__,
        "plan": plan,
        "variant": variant,
        "parameters": sum(parameter.numel() for parameter in case.model.parameters()),
        "inputs": sorted(case.batch),
        "labels": case.labels is not None,
    }
    return case


def find_tested(model_type: str, reasons: list[str]) -> Case | None:
    """A case from Transformers' own tests, where their source tree is given; some types are only parts of others."""
    preferred = [name for name, _ in heads(model_type)]
    wholes = testers.wholes(model_type, preferred, reasons)
    for plan, found in (("tests", wholes), ("part", testers.parts(model_type, reasons))):
        for model, inputs in found:
            labels = inputs.pop("labels", None)
            try:
                return with_notes(try_on_cpu(model, inputs, labels), plan, 0)
            except Exception as error:
                reasons.append(f"{type(model).__name__}, {plan}: {describe(error)}")
    return None


def make_case(model_type: str) -> Case:
    """A small model of a type with inputs for it that runs on the CPU.

    Raises
    ------
    ValueError
        If none that we make does, with the reasons of all.
    """
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    reasons = []
    case = find_tested(model_type, reasons) or find_shrunk(model_type, reasons)
    if case is None:
        raise ValueError(reasons or ["no model class takes this configuration"])
    return case


def find_shrunk(model_type: str, reasons: list[str]) -> Case | None:
    """A case of our own making: the first plan and the first variant that run on the CPU."""
    exception = EXCEPTIONS.get(model_type, {})
    for rank, (class_name, kind) in enumerate(heads(model_type)[:2]):
        # Where no plan fits the best class, the next one gets those that change most.
        for plan in exception.get("plans", list(PLANS)[: len(PLANS) - 2 * rank]):
            try:
                model = build(model_type, class_name, plan, exception)
                case, variant = find_inputs(model, kind, exception.get("inputs"))
                return with_notes(case, plan, variant)
            except Exception as error:
                reasons.append(f"{class_name}, {plan}: {describe(error)}")
    return None
