"""Inputs for a model, made from its configuration and the signature of its `forward`.

Where a name leaves open what shape is meant (a wave or a spectrogram, one image or several frames) there are variants;
the sweep takes the first that the model accepts on the CPU.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

BATCH = 2
TEXT = 9
TARGET = 5
WAVE = 4000
FRAMES = 64


class Unfit(Exception):
    """The model makes no features of the images or sounds of a variant; `args` has how many variants there are."""


class Facts:
    """What inputs depend on: the model's configuration, and random numbers that are the same every time."""

    def __init__(self, model: torch.nn.Module, variant: int = 0) -> None:
        self.model = model
        self.config = model.config
        self.variant = variant
        self.choices = 1
        self.generator = torch.Generator().manual_seed(0)
        self.parameters = inspect.signature(model.forward).parameters

    def get(self, *names: str, default: Any = None, part: str | None = None) -> Any:
        """The first of these fields that the configuration has, or a part of it (text, vision, audio)."""
        for config in self.parts(part):
            for name in names:
                value = getattr(config, name, None)
                if value is not None:
                    return value
        return default

    def parts(self, part: str | None) -> Iterator[Any]:
        """The configuration of a part, then the whole, then whatever else is inside."""
        seen = [self.config]
        if part:
            preferred = getattr(self.config, part + "_config", None)
            if preferred is not None:
                yield preferred
        while seen:
            config = seen.pop(0)
            yield config
            for name in getattr(config, "sub_configs", {}):
                nested = getattr(config, name, None)
                if nested is not None and not isinstance(nested, dict):
                    seen.append(nested)

    def floats(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def vocabulary(self) -> int:
        value = self.get("vocab_size", part="text", default=32)
        return max(value) if isinstance(value, (list, tuple)) else value

    def tokens(self, *shape: int) -> torch.Tensor:
        """Token ids that are not special."""
        special = set(special_tokens(self.config))
        usual = [token for token in range(min(self.vocabulary(), 120)) if token not in special] or [0]
        chosen = torch.randint(len(usual), shape, generator=self.generator)
        return torch.tensor(usual)[chosen]

    def pick(self, *choices: Callable[[], Any]) -> Any:
        """One of several readings of a name, by the variant."""
        self.choices = max(self.choices, len(choices))
        return choices[self.variant % len(choices)]()


def special_tokens(config: Any) -> Iterator[int]:
    """Every id that a configuration, or one inside it, calls a token."""
    for name, value in vars(config).items():
        if name.endswith(("token_id", "token_index", "token_ids")):
            yield from [value] if isinstance(value, int) else [item for item in value or () if isinstance(item, int)]
        elif hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield from special_tokens(value)


def pair(value: Any) -> tuple[int, int]:
    if isinstance(value, dict):
        value = list(value.values())
    return (value, value) if isinstance(value, int) else (value[-2], value[-1])


def channels(facts: Facts) -> int:
    value = facts.get("num_channels", "in_channels", "in_chans", "num_input_channels", "image_channels", part="vision")
    return value if isinstance(value, int) and value <= 16 else 3


def image_side(facts: Facts) -> tuple[int, int]:
    value = facts.get("image_size", "img_size", "input_size", "crop_size", "resolution", default=64, part="vision")
    sides = pair(value)
    return sides if min(sides) >= 8 else (64, 64)


def patch_rows(facts: Facts) -> torch.Tensor:
    """Images as rows of patches, as the Qwen family takes them: one image of 4 x 4 patches a sample."""
    patch = pair(facts.get("patch_size", default=14, part="vision"))
    frames = facts.get("temporal_patch_size", default=1, part="vision")
    frames = frames if isinstance(frames, int) else frames[0]
    return facts.floats(BATCH * 16, channels(facts) * frames * patch[0] * patch[1])


def pixels(facts: Facts) -> torch.Tensor:
    if any(name in facts.parameters for name in ("image_grid_thw", "grid_thw", "grid_thws", "image_grid_hws")):
        rows = patch_rows(facts)
        patch = pair(facts.get("patch_size", default=14, part="vision"))
        return facts.pick(lambda: rows, lambda: rows.reshape(len(rows), -1, *patch))
    if "spatial_shapes" in facts.parameters:
        return patch_rows(facts).reshape(BATCH, 16, -1)
    height, width = image_side(facts)
    frames = facts.get("num_frames", "frames_per_clip", default=2, part="vision")
    images = (BATCH, channels(facts), height, width)
    videos = (BATCH, frames if isinstance(frames, int) else 2, channels(facts), height, width)
    several = (BATCH, 1, channels(facts), height, width)
    video = facts.get("num_frames", "frames_per_clip", "tubelet_size", part="vision") is not None
    if video and "input_ids" not in facts.parameters:
        return facts.pick(lambda: facts.floats(*videos), lambda: facts.floats(*images))
    return facts.pick(
        lambda: facts.floats(*images),
        lambda: facts.floats(*several),
        lambda: facts.floats(BATCH, channels(facts), 64, 64),
        lambda: facts.floats(*images),  # with sizes beside them
        lambda: facts.floats(*videos),
    )


def sizes(facts: Facts) -> torch.Tensor:
    return torch.tensor([image_side(facts)] * BATCH)


def grid(facts: Facts) -> torch.Tensor:
    return torch.tensor([[1, 4, 4]] * BATCH)


def videos(facts: Facts) -> torch.Tensor:
    frames = facts.get("frames_per_clip", "num_frames", default=2, part="vision")
    return facts.floats(BATCH, frames, channels(facts), *image_side(facts))


def mels(facts: Facts) -> int:
    names = "num_mel_bins", "n_mels", "mel_dim", "feature_size", "input_feat_per_channel", "num_features", "input_dim"
    value = facts.get(*names, "feature_projection_input_dim", "input_size", default=80, part="audio")
    return value if isinstance(value, int) else 80


def spectrogram(facts: Facts) -> torch.Tensor:
    frames = 2 * facts.get("max_source_positions", default=FRAMES // 2, part="audio")
    return facts.pick(
        lambda: facts.floats(BATCH, mels(facts), frames),
        lambda: facts.floats(BATCH, frames, mels(facts)),
        lambda: facts.floats(BATCH, 1, 2 * frames, mels(facts)),
        lambda: facts.floats(BATCH, WAVE),
    )


def frame_mask(facts: Facts, batch: dict[str, Any]) -> torch.Tensor | None:
    """Ones over the frames of the spectrograms of a batch."""
    sounds = batch.get("input_features", batch.get("input_values"))
    if sounds is None:
        return None
    frames = sounds.shape[1] if sounds.dim() == 3 and sounds.shape[1] != mels(facts) else sounds.shape[-1]
    return torch.ones(BATCH, frames, dtype=torch.int64)


def waves(facts: Facts) -> torch.Tensor:
    frames = facts.get("max_length", default=FRAMES)
    return facts.pick(
        lambda: facts.floats(BATCH, WAVE),
        lambda: facts.floats(BATCH, 1, WAVE - WAVE % 1920 or 1920),
        lambda: facts.floats(BATCH, frames if isinstance(frames, int) and frames < 2048 else FRAMES, mels(facts)),
        lambda: facts.floats(BATCH, FRAMES, mels(facts)),
    )


def text_mask(facts: Facts) -> torch.Tensor:
    """Ones; the second text is shorter where text is all there is."""
    if "input_ids" not in facts.parameters:
        return facts.pick(lambda: torch.ones(BATCH, WAVE, dtype=torch.int64))
    mask = torch.ones(BATCH, TEXT, dtype=torch.int64)
    if not any(name in facts.parameters for name in ("pixel_values", "input_features", "input_values", "bbox")):
        mask[1, :2] = 0
    return mask


def boxes(facts: Facts) -> torch.Tensor:
    corner = torch.randint(1, 40, (BATCH, TEXT, 2), generator=facts.generator)
    integral = facts.get("max_2d_position_embeddings") is not None
    box = torch.cat([corner, corner + torch.randint(1, 20, corner.shape, generator=facts.generator)], -1)
    return box if integral else box / 64.0


def history(facts: Facts) -> int:
    """How many past values a time series model wants."""
    context = facts.get("context_length", default=32)
    return context + max(facts.get("lags_sequence", default=[0]) or [0])


def series(facts: Facts, length: int) -> torch.Tensor:
    width = facts.get("num_input_channels", "input_size", default=1)
    if width > 1:
        return facts.floats(BATCH, length, width)
    return facts.pick(lambda: facts.floats(BATCH, length), lambda: facts.floats(BATCH, length, 1))


def future(facts: Facts) -> int:
    return facts.get("prediction_length", default=8)


def time_features(facts: Facts, length: int) -> torch.Tensor:
    return facts.floats(BATCH, length, facts.get("num_time_features", default=0) or 1)


TextLike = Callable[[Facts], Any]

# What an input of a name is. An entry serves whenever `forward` has the name; REQUIRED_ONLY those without a default.
INPUTS: dict[str, TextLike] = {
    "input_ids": lambda facts: facts.tokens(BATCH, TEXT),
    "attention_mask": text_mask,
    "pixel_values": pixels,
    "image_grid_thw": grid,
    "grid_thw": grid,
    "grid_thws": grid,
    "image_grid_hws": lambda facts: torch.tensor([[4, 4]] * BATCH),
    "image_sizes": lambda facts: facts.pick(lambda: None, lambda: sizes(facts), lambda: None, lambda: sizes(facts)),
    "input_features": spectrogram,
    "input_values": waves,
    "decoder_input_ids": lambda facts: facts.tokens(BATCH, TARGET),
    "bbox": boxes,
    "past_values": lambda facts: series(facts, history(facts)),
    "past_time_features": lambda facts: time_features(facts, history(facts)),
    "past_observed_mask": lambda facts: torch.ones(series(facts, history(facts)).shape),
    "future_values": lambda facts: series(facts, future(facts)),
    "future_time_features": lambda facts: time_features(facts, future(facts)),
    "visual_feats": lambda facts: facts.floats(BATCH, 4, facts.get("visual_feat_dim", default=64)),
    "visual_pos": lambda facts: facts.floats(BATCH, 4, facts.get("visual_pos_dim", default=4)).abs(),
    "flattened_patches": lambda facts: torch.cat(
        [torch.arange(2 * 16 * BATCH).reshape(BATCH, 16, 2) % 4, facts.floats(BATCH, 16, patch_width(facts))], -1
    ),
    "spatial_shapes": lambda facts: torch.tensor([[4, 4]] * BATCH),
    "pixel_attention_mask": lambda facts: (
        torch.ones(BATCH, 16, dtype=torch.int64) if "spatial_shapes" in facts.parameters else None
    ),
    "image": lambda facts: facts.floats(BATCH, 3, 224, 224),
    "qformer_input_ids": lambda facts: facts.tokens(BATCH, TEXT),
}

REQUIRED_ONLY: dict[str, TextLike] = {
    "pixel_values_videos": videos,
    "video_grid_thw": grid,
    "hidden_states": lambda facts: facts.pick(
        lambda: patch_rows(facts),
        lambda: facts.floats(BATCH, TEXT, facts.get("hidden_size", default=64)),
        lambda: facts.floats(BATCH, facts.get("hidden_size", default=64), TEXT),
    ),
    "inputs_embeds": lambda facts: facts.floats(BATCH, TEXT, facts.get("hidden_size", "d_model", default=64)),
    "query_embeds": lambda facts: facts.floats(BATCH, 4, facts.get("hidden_size", default=64)),
    "encoder_hidden_states": lambda facts: facts.floats(
        BATCH, TEXT, facts.get("encoder_hidden_size", "cross_attention_hidden_size", "hidden_size", default=64)
    ),
    "bool_masked_pos": lambda facts: torch.zeros(BATCH, 16, dtype=torch.bool),
    "inputs": lambda facts: facts.pick(
        lambda: facts.tokens(BATCH, TEXT), lambda: facts.floats(BATCH, TEXT, facts.get("d_model", default=64))
    ),
    "spectrogram": lambda facts: facts.floats(BATCH, FRAMES, mels(facts)),
    "position_ids": lambda facts: torch.arange(TEXT).expand(BATCH, TEXT).contiguous(),
    "audio_values": lambda facts: facts.floats(BATCH, 1, 1920),
    "audio_codes": lambda facts: torch.randint(0, 32, (BATCH, 4, 8), generator=facts.generator),
    "states": lambda facts: facts.floats(BATCH, TEXT, facts.get("state_dim", default=17)),
    "actions": lambda facts: facts.floats(BATCH, TEXT, facts.get("act_dim", "action_dim", default=4)),
    "rewards": lambda facts: facts.floats(BATCH, TEXT, 1),
    "returns_to_go": lambda facts: facts.floats(BATCH, TEXT, 1),
    "timesteps": lambda facts: torch.arange(TEXT).expand(BATCH, TEXT).contiguous(),
    "features": lambda facts: facts.floats(BATCH, TEXT, facts.get("hidden_size", default=64)),
    "padding_mask": lambda facts: torch.ones(BATCH, WAVE, dtype=torch.int64),
    "aspect_ratio_ids": lambda facts: torch.ones(BATCH, 1, dtype=torch.int64),
    "aspect_ratio_mask": lambda facts: torch.ones(BATCH, 1, 4, dtype=torch.int64),
    "audio": lambda facts: facts.floats(BATCH, WAVE),
}


def patch_width(facts: Facts) -> int:
    return facts.get("patch_embed_hidden_size", default=768, part="vision")


def make_batch(
    model: torch.nn.Module, variant: int = 0, changes: dict[str, Any] | None = None
) -> tuple[dict[str, Any], int]:
    """The inputs of one forward call, without labels, and how many variants there are.

    Parameters
    ----------
    model
        The model on the CPU.
    variant
        Which reading of names that leave a choice.
    changes
        Functions of `Facts` for inputs that need a value of their own; None leaves an input out.
    """
    facts = Facts(model, variant)
    changes = changes or {}
    batch = {}
    for name, parameter in facts.parameters.items():
        required = parameter.default is inspect.Parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        make = INPUTS.get(name) or (REQUIRED_ONLY.get(name) if required else None)
        make = changes.get(name, make)
        if make is not None:
            batch[name] = make(facts)
    for name, make in changes.items():
        if make is not None and name not in batch:
            batch[name] = make(facts)
    for name in ("input_features_mask", "feature_attention_mask"):
        if name in facts.parameters and name not in changes:
            batch[name] = frame_mask(facts, batch)
    if "input_ids" not in batch and "attention_mask" in batch:
        fit_mask(model, batch)
    batch = {name: value for name, value in batch.items() if value is not None}
    try:
        insert_features(facts, batch)
    except Exception as error:
        raise Unfit(facts.choices) from error
    return batch, facts.choices


def fit_mask(model: torch.nn.Module, batch: dict[str, Any]) -> None:
    """A mask over a model's main input: over a wave's samples or a spectrogram's frames, whichever it is."""
    main = batch.get(model.main_input_name)
    del batch["attention_mask"]
    if main is not None and main.is_floating_point() and main.dim() == 2 and main.shape[1] == WAVE:
        batch["attention_mask"] = torch.ones(main.shape, dtype=torch.int64)


def insert_features(facts: Facts, batch: dict[str, Any]) -> None:
    """Put as many placeholder tokens into the text as the images and sounds have features."""
    if "input_ids" not in batch:
        return
    inserted = []
    for kind, source in (("image", "pixel_values"), ("audio", "input_features"), ("audio", "input_values")):
        token = facts.get(f"{kind}_token_id", f"{kind}_token_index", f"{kind}_token_idx")
        count = count_features(facts.model, kind, batch) if source in batch and isinstance(token, int) else 0
        if count:
            inserted.append((token, count // BATCH))
    if not inserted:
        return
    ids = batch["input_ids"]
    placeholders = [torch.full((BATCH, count), token) for token, count in inserted]
    batch["input_ids"] = torch.cat([ids[:, :3], *placeholders, ids[:, 3:]], 1)
    if "attention_mask" in batch:
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in facts.parameters:
            batch[name] = (batch["input_ids"] == inserted[0][0]).long()


def count_features(model: torch.nn.Module, kind: str, batch: dict[str, Any]) -> int:
    """How many rows the model makes of the images or sounds of a batch."""
    holders = [module for module in model.modules() if hasattr(module, f"get_{kind}_features")]
    method = getattr(holders[0], f"get_{kind}_features") if holders else None
    if method is None:
        return 0
    accepted = inspect.signature(method).parameters
    with torch.no_grad():
        features = method(**{name: value for name, value in batch.items() if name in accepted and name != "input_ids"})
    features = getattr(features, "pooler_output", features)
    features = getattr(features, "last_hidden_state", features)
    if torch.is_tensor(features):
        features = [features]
    return sum(item.numel() // item.shape[-1] for item in features)


def make_labels(model: torch.nn.Module, kind: str, batch: dict[str, Any]) -> torch.Tensor | None:
    """Labels for a kind of head, or None where the loss is to be made from the outputs."""
    facts = Facts(model)
    if "labels" not in facts.parameters:
        return None
    if kind in ("causal", "masked", "multimodal") and "input_ids" in batch:
        ids = batch.get("decoder_input_ids", batch["input_ids"])
        special = torch.tensor(sorted(set(special_tokens(model.config))) or [-1])
        return ids.masked_fill(torch.isin(ids, special), -100)
    if kind == "sequence to sequence":
        return facts.tokens(BATCH, TARGET)
    if kind == "classes":
        return torch.tensor([0, 1])
    if kind == "ctc":
        return facts.tokens(BATCH, 3)
    return None
