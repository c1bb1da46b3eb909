"""A small configuration of any model type, made from the defaults of its configuration class.

A plan goes over the fields of the class by name: layers, heads, widths, vocabularies, positions and images each have a
rule, and sub-configurations are shrunk in the same way with the same plan, so that what has to be equal stays equal.
Two plans are known. `Uniform` gives every width of a kind the same small value, which fits nearly all models of one
width. `Proportional` divides every width by one number and leaves the heads alone, so that sums, ratios and pyramids
of widths stay what they were. Which one fits a type shows when the model runs on the CPU.
"""

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedConfig, ResNetConfig, TimmBackboneConfig

VOCABULARY = 128
CODES = 64
POSITIONS = 256
PATCHES_PER_SIDE = 4
LAYERS = 2
SMALL_RESNET = {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 1, 1]}
MOST_LAYERS = 6  # of a type whose layers come in several kinds

RANDOM = (
    r"dropout|drop_path|droppath|layer_?drop|_pdrop$|drop_rate|drop_connect|mask_time_prob|mask_feature_prob|token_drop"
)
TOKEN = r"token_ids?$|token_index$|token_indices$|_token$|^(eos|bos|pad|sep|cls|mask|unk|boi|eoi|boa|eoa)_"
VOCABULARIES = r"vocab_size|^num_embeddings$|^vocabulary_map"
CODEBOOKS = r"codebook_size|num_codevectors|^num_tokens$|codebook_num_embeddings"
EXPERTS = r"^(n_routed|num|num_local|moe_num|n|num_routed|ffn_num|moe_num_routed)_experts$"
CHOSEN_EXPERTS = r"experts_per_tok(en)?$|^moe_topk$|^moe_top_k$|^moe_k$"
LAYER_COUNTS = (
    r"^(num|n)_(.*_)?(layers?|blocks)$|(encoder|decoder|hidden|num|speech|text|transformer|conformer)_layers$"
    r"|^n_layers?$|^layers$|^(iou_head_)?depth$|(_|^)depth$|^encoder_depth|^num_encoder_layers|resampler_depth"
)
NOT_LAYER_COUNTS = r"feat_extract|kv_shared|upsampl|adapter|lstm|cond|feature|iou_head|max_depth|min_depth"
STAGES = r"^depths?$|blocks_per_stage|stage_num_blocks|^num_layers$|^layers?$|^num_block_repeats$|stage_numb_of_layers"
QUERIES = r"^num_(object_)?queries$|num_proposals$|^num_denoising$"
IMAGES = r"^(.*_)?(image|img|input|crop|pretrain_image|pretrained_image)_size$|^image_resolution$|^resolution$"
PATCH = r"^(.*_)?patch_size$"
POSITION_COUNTS = (
    r"max_.*positions?(_embeddings)?$|^n_positions$|^n_ctx$|^max_seq(uence)?_len(gth)?$|^max_position_embeddings"
)
SOURCE_POSITIONS = r"max_source_positions|^max_audio_positions"
HEAD_COUNTS = r"^(.*_)?(num_|n_)?(.*_)?heads$|^n_head$|^num_heads$"
KEY_VALUE_HEADS = r"key_value|kv_head|n_head_kv|num_kv"
HEAD_WIDTHS = r"head_dim|^d_kv$|^kv_channels$|^dim_head$|^attention_head_size$|^d_head$|dim_per_head"
RANKS = r"lora_rank|_rank$|low_rank|^rank$"
INNER_WIDTHS = r"intermediate|ffn|^d_ff$|_d_ff$|mlp_dim|^n_inner$|mlp_hidden|feed_forward|feedforward|^ff_dim"
WIDTHS = (
    r"hidden_size|hidden_dim|d_model|^n_embd$|embd|embed_dim|embedding_size|embedding_dim|emb_dim|_dim$|^dim$|"
    r"projection_size|proj_size|^width$|^d_[a-z]+$|_width$|hidden_channels|out_channels|output_channels|"
    r"base_channels|num_filters|_features?$|channel_list|embed_dims|^embed_dim|dims$|hidden_sizes|_channels$|d_inner|"
    r"context_dim|output_size|query_dim|state_size|_initial_channel|filters|channels_list|_dimension$"
)
NOT_WIDTHS = (
    r"num_channels|in_chans|in_channels$|image_channels|^channels$|kernel|num_labels|conv_dim|_kernel_dim|spec_channels|"
    r"num_mel|n_mels|mel_dim|input_dim$|patch|window|rotary_dim|num_features|feature_size|max_"
)


class Plan:
    """What a field of a configuration becomes; one object for a whole tree of configurations.

    Attributes
    ----------
    layers
        How many layers a stack gets that has layers of one kind.
    small_images
        Whether images have a few patches only.
    """

    layers = LAYERS
    small_images = True

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}

    def token(self, value: int) -> int:
        """A token id inside the small vocabulary; different ones stay different."""
        if value < VOCABULARY:
            return value
        return self.tokens.setdefault(value, VOCABULARY - 1 - len(self.tokens))

    def width(self, name: str, value: int) -> int:
        raise NotImplementedError

    def heads(self, name: str, value: int, fields: dict[str, Any]) -> int:
        raise NotImplementedError

    def pyramid(self, values: list[int]) -> list[int]:
        raise NotImplementedError


class Uniform(Plan):
    """Every width 64, every inner width 128, four heads of 16."""

    def width(self, name: str, value: int) -> int:
        if re.search(HEAD_WIDTHS, name):
            return min(value, 16)
        if re.search(RANKS, name):
            return min(value, 16)
        return min(value, 128 if re.search(INNER_WIDTHS, name) else 64)

    def heads(self, name: str, value: int, fields: dict[str, Any]) -> int:
        if not re.search(KEY_VALUE_HEADS, name):
            return min(value, 4)
        queries = [fields[key] for key in ("num_attention_heads", "n_head", "num_heads") if fields.get(key)]
        return min(value, 4 if value in queries else 2)

    def pyramid(self, values: list[int]) -> list[int]:
        return [value // 8 if value >= 32 else value for value in values]


class WholeImages(Uniform):
    """The same with images of the usual size, for models whose windows and poolings divide it."""

    small_images = False


class Proportional(Plan):
    """Every width divided by one number; as many heads as there were, each narrower."""

    def __init__(self, divisor: int) -> None:
        super().__init__()
        self.divisor = divisor

    def width(self, name: str, value: int) -> int:
        return value // self.divisor if value >= 2 * self.divisor else value

    def heads(self, name: str, value: int, fields: dict[str, Any]) -> int:
        return value

    def pyramid(self, values: list[int]) -> list[int]:
        if min(values) < 2 * self.divisor:
            return values
        return [value // self.divisor for value in values]


class FewerLayers(Proportional):
    """The widths as they are: for small models that stand no other change."""

    def __init__(self) -> None:
        super().__init__(1)


PLANS: dict[str, Callable[[], Plan]] = {
    "uniform": Uniform,
    "whole images": WholeImages,
    "proportional": lambda: Proportional(8),
    "half as far": lambda: Proportional(4),
    "fewer layers": FewerLayers,
}


def layer_count(config: PreTrainedConfig, usual: int) -> int:
    """As few layers as have one of each kind that the default configuration lists."""
    count = usual
    for key in ("layer_types", "mlp_layer_types", "layers_block_type", "indexer_types", "no_rope_layers"):
        kinds = getattr(config, key, None)
        if isinstance(kinds, (list, tuple)) and kinds:
            needed = 1 + max(list(kinds).index(kind) for kind in set(kinds))
            count = max(count, min(needed, MOST_LAYERS))
    return max(count, len(getattr(config, "out_indices", None) or ()))


def shrink_rope(rope: dict, head_ratio: float, head_width: int, sections: bool) -> dict:
    """Rotary dimensions given in sections, one for time, height and width each, add up to half a head's width."""
    changed = dict(rope)
    for key in ("long_factor", "short_factor"):
        if key in rope:
            changed[key] = list(rope[key])[: max(1, math.ceil(len(rope[key]) * head_ratio))]
    half = int(head_width * rope.get("partial_rotary_factor", 1.0)) // 2
    side = 3 * half // 8
    if sections:
        changed["mrope_section"] = [half - 2 * side, side, side]
    return changed


def shrink_number(plan: Plan, name: str, value: int, fields: dict, default: PreTrainedConfig) -> int:
    """What an integer field becomes; the first rule whose names fit decides."""
    if re.search(TOKEN, name):
        return plan.token(value)
    if re.search(VOCABULARIES, name):
        return min(value, VOCABULARY)
    if re.search(CODEBOOKS, name):
        return min(value, CODES)
    if re.search(EXPERTS, name):
        return min(value, 8)
    if re.search(CHOSEN_EXPERTS, name):
        return min(value, 2)
    if name in ("n_group", "topk_group"):
        return min(value, 2 if name == "n_group" else 1)
    if name == "first_k_dense_replace":
        return min(value, 1)
    if re.search(QUERIES, name):
        return min(value, 10)
    if name in ("num_kv_shared_layers", "num_nextn_predict_layers"):
        return 0
    if re.search(LAYER_COUNTS, name) and not re.search(NOT_LAYER_COUNTS, name):
        return min(value, layer_count(default, plan.layers))
    if re.search(SOURCE_POSITIONS, name):
        return min(value, 64)
    if re.search(POSITION_COUNTS, name):
        return min(value, POSITIONS)
    if re.search(IMAGES, name):
        return min(value, image_side(fields)) if plan.small_images else value
    if re.search(HEAD_COUNTS, name):
        return plan.heads(name, value, fields)
    if re.search(WIDTHS + "|" + INNER_WIDTHS + "|" + RANKS + "|" + HEAD_WIDTHS, name):
        return value if re.search(NOT_WIDTHS, name) else plan.width(name, value)
    return value


def image_side(fields: dict) -> int:
    """The side of an image of a few patches."""
    for name, value in fields.items():
        if re.search(PATCH, name):
            value = max(value) if isinstance(value, (list, tuple)) else value
            if isinstance(value, int) and value > 1:
                return value * PATCHES_PER_SIDE
    return 64


def shrink_list(plan: Plan, name: str, value: list, fields: dict, default: PreTrainedConfig) -> list:
    if not value or not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return value
    if re.search(TOKEN, name):
        return [plan.token(item) for item in value]
    if re.search(STAGES, name):
        return [min(item, 1) for item in value]
    if re.search(IMAGES, name):
        return [min(item, image_side(fields)) if plan.small_images else item for item in value]
    if re.search(r"section", name):
        return value
    if re.search(HEAD_COUNTS, name):
        return [plan.heads(name, item, fields) for item in value]
    if re.search(WIDTHS + "|" + INNER_WIDTHS, name) and not re.search(NOT_WIDTHS, name):
        return plan.pyramid(value)
    return value


def shrink_field(plan: Plan, name: str, value: Any, fields: dict, default: PreTrainedConfig) -> Any:
    if isinstance(value, bool) or value is None:
        return False if name == "apply_spec_augment" else value
    if isinstance(value, float):
        return 0.0 if re.search(RANDOM, name) else value
    if isinstance(value, int):
        return 0 if re.search(RANDOM, name) else shrink_number(plan, name, value, fields, default)
    if isinstance(value, dict) and value and all(isinstance(key, int) for key in value):
        # What holds for single layers, by their numbers.
        return {key: item for key, item in value.items() if key < layer_count(default, plan.layers)}
    if isinstance(value, (list, tuple)):
        return type(value)(shrink_list(plan, name, list(value), fields, default))
    return value


def read_fields(config_class: type[PreTrainedConfig], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration class with their defaults; those that are derived from others are left out."""
    fields = {}
    for field in dataclasses.fields(config_class):
        if field.name in given:
            fields[field.name] = given[field.name]
        elif field.default is not dataclasses.MISSING:
            fields[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            fields[field.name] = field.default_factory()
    return {name: value for name, value in fields.items() if value is not None}


def shrink(
    config_class: type[PreTrainedConfig],
    plan: Plan,
    changes: dict[str, Any] | None = None,
    given: dict[str, Any] | None = None,
) -> PreTrainedConfig:
    """A small configuration.

    Parameters
    ----------
    config_class
        Whose defaults are shrunk.
    plan
        How.
    changes
        Fields that are to have other values than the plan gives them. A field of a sub-configuration is written with
        dots, as in `vision_config.depth`.
    given
        What the configuration that this one is part of passes to its class.
    """
    changes, given = changes or {}, given or {}
    default = config_class(**given)
    specifications = config_class.sub_configs_defaults or {}
    fields = read_fields(config_class, given)
    arguments = {name: value for name, value in given.items() if name not in specifications}
    for name, value in fields.items():
        if name in specifications:
            continue
        shrunk = shrink_field(plan, name, value, fields, default)
        if shrunk != value:
            arguments[name] = shrunk
    rope = getattr(default, "rope_parameters", None)
    sections = "mrope_section" in (getattr(config_class, "ignore_keys_at_rope_validation", None) or ())
    if isinstance(rope, dict) and "rope_type" in rope and (sections or "long_factor" in rope):
        before, after = head_widths(plan, fields)
        arguments["rope_parameters"] = shrink_rope(rope, after / before, after, sections)
    arguments.update(shrink_backbone(plan, default))
    for name, specification in specifications.items():
        present = getattr(default, name, None)
        if isinstance(present, TimmBackboneConfig):
            # A convolutional backbone that takes another package: Transformers' own gives features of the same strides.
            arguments[name] = ResNetConfig(**SMALL_RESNET, out_indices=list(present.out_indices))
        elif isinstance(present, PreTrainedConfig):
            nested = {key.partition(".")[2]: value for key, value in changes.items() if key.startswith(name + ".")}
            arguments[name] = shrink(type(present), plan, nested, dict(specification.init_kwargs))
    arguments.update({name: value for name, value in changes.items() if "." not in name})
    return config_class(**arguments)


def shrink_backbone(plan: Plan, default: PreTrainedConfig) -> dict:
    """The layers of a backbone whose outputs are used: as many as before, counted from the end."""
    used = getattr(default, "out_indices", None)
    layers = getattr(default, "num_hidden_layers", 0)
    count = layer_count(default, plan.layers)
    if not used or not isinstance(layers, int) or layers <= count or hasattr(default, "depths"):
        return {}
    return {"out_indices": list(range(count - len(used) + 1, count + 1)), "out_features": None}


def head_widths(plan: Plan, fields: dict) -> tuple[int, int]:
    """How wide a head was and becomes."""
    if "head_dim" in fields:
        return fields["head_dim"], plan.width("head_dim", fields["head_dim"])
    heads, width = fields.get("num_attention_heads", 1), fields.get("hidden_size", 1)
    return width // heads, plan.width("hidden_size", width) // plan.heads("num_attention_heads", heads, fields)
