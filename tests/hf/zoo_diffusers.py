"""Models and pipelines of diffusers with tiny random components, as cases of the sweep."""

import dataclasses
from collections.abc import Callable
from typing import Any

from torchvision_operators import define_torchvision_operators
from trial import Case

import torch

BATCH = 2
SIDE = 8
WORDS = 5
WIDTH = 16
STEPS = 4
DOWN = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
CROSS = {
    **DOWN,
    "sample_size": SIDE,
    "in_channels": 4,
    "out_channels": 4,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "cross_attention_dim": WIDTH,
    "attention_head_dim": 4,
}
CODER = {
    **DOWN,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "latent_channels": 4,
}
HEADS = {"num_attention_heads": 2, "attention_head_dim": 8}


def floats(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def image(channels: int = 4, side: int = SIDE) -> torch.Tensor:
    return floats(BATCH, channels, side, side)


def words(width: int = WIDTH) -> torch.Tensor:
    return floats(BATCH, WORDS, width)


def timestep() -> torch.Tensor:
    return torch.tensor([10, 20])


@dataclasses.dataclass
class Component:
    """A model class of diffusers: what it is made with and called with."""

    arguments: dict[str, Any]
    batch: Callable[[], dict[str, Any]]


def latent_batch(**more: Any) -> dict[str, Any]:
    return {"hidden_states": image(), "timestep": timestep(), **more}


MODELS: dict[str, Component] = {
    "UNet2DModel": Component(
        {
            **DOWN,
            "sample_size": SIDE,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
            "attention_head_dim": 4,
        },
        lambda: {"sample": image(3), "timestep": timestep()},
    ),
    "UNet2DConditionModel": Component(
        CROSS, lambda: {"sample": image(), "timestep": timestep(), "encoder_hidden_states": words()}
    ),
    "UNet3DConditionModel": Component(
        {
            **CROSS,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        lambda: {
            "sample": floats(BATCH, 4, 2, SIDE, SIDE),
            "timestep": timestep(),
            "encoder_hidden_states": words(),
        },
    ),
    "ControlNetModel": Component(
        {
            **{
                name: value
                for name, value in CROSS.items()
                if name not in ("up_block_types", "sample_size", "out_channels")
            },
            "conditioning_embedding_out_channels": (8, 16),
        },
        lambda: {
            "sample": image(),
            "timestep": timestep(),
            "encoder_hidden_states": words(),
            "controlnet_cond": image(3, 2 * SIDE),
        },
    ),
    "AutoencoderKL": Component(CODER, lambda: {"sample": image(3)}),
    "AutoencoderKLTemporalDecoder": Component(
        {name: value for name, value in CODER.items() if name not in ("up_block_types", "norm_num_groups")}
        | {"block_out_channels": (32, 32)},
        lambda: {"sample": image(3), "num_frames": BATCH},
    ),
    "VQModel": Component(CODER | {"num_vq_embeddings": 32}, lambda: {"sample": image(3)}),
    "AutoencoderTiny": Component(
        {
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "num_encoder_blocks": (1, 1),
            "num_decoder_blocks": (1, 1),
        },
        lambda: {"sample": image(3)},
    ),
    "DiTTransformer2DModel": Component(
        {**HEADS, "in_channels": 4, "out_channels": 4, "num_layers": 2, "sample_size": SIDE, "num_embeds_ada_norm": 10},
        lambda: latent_batch(class_labels=torch.tensor([1, 2])),
    ),
    "PixArtTransformer2DModel": Component(
        {
            **HEADS,
            "in_channels": 4,
            "out_channels": 8,
            "num_layers": 2,
            "cross_attention_dim": WIDTH,
            "sample_size": SIDE,
            "caption_channels": 12,
            "use_additional_conditions": False,
        },
        lambda: latent_batch(
            encoder_hidden_states=words(12), added_cond_kwargs={"resolution": None, "aspect_ratio": None}
        ),
    ),
    "SD3Transformer2DModel": Component(
        {
            **HEADS,
            "sample_size": SIDE,
            "in_channels": 4,
            "out_channels": 4,
            "num_layers": 2,
            "joint_attention_dim": WIDTH,
            "caption_projection_dim": WIDTH,
            "pooled_projection_dim": WIDTH,
            "pos_embed_max_size": 16,
        },
        lambda: latent_batch(encoder_hidden_states=words(), pooled_projections=floats(BATCH, WIDTH)),
    ),
    "FluxTransformer2DModel": Component(
        {
            "patch_size": 1,
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": WIDTH,
            "pooled_projection_dim": WIDTH,
            "axes_dims_rope": (4, 4, 8),
        },
        lambda: {
            "hidden_states": floats(BATCH, 16, 4),
            "timestep": torch.tensor([0.1, 0.2]),
            "encoder_hidden_states": words(),
            "pooled_projections": floats(BATCH, WIDTH),
            "img_ids": torch.zeros(16, 3),
            "txt_ids": torch.zeros(WORDS, 3),
        },
    ),
    "SanaTransformer2DModel": Component(
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_layers": 1,
            "num_attention_heads": 2,
            "attention_head_dim": 4,
            "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 4,
            "cross_attention_dim": 8,
            "caption_channels": 8,
            "sample_size": SIDE,
        },
        lambda: latent_batch(encoder_hidden_states=words(8)),
    ),
    "WanTransformer3DModel": Component(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "in_channels": 4,
            "out_channels": 4,
            "text_dim": WIDTH,
            "freq_dim": 16,
            "ffn_dim": 32,
            "num_layers": 2,
            "rope_max_seq_len": 32,
        },
        lambda: {
            "hidden_states": floats(BATCH, 4, 2, SIDE, SIDE),
            "timestep": timestep(),
            "encoder_hidden_states": words(),
        },
    ),
    "CogVideoXTransformer3DModel": Component(
        {
            **HEADS,
            "in_channels": 4,
            "out_channels": 4,
            "time_embed_dim": 4,
            "text_embed_dim": WIDTH,
            "num_layers": 1,
            "sample_width": SIDE,
            "sample_height": SIDE,
            "sample_frames": 5,
            "max_text_seq_length": WORDS,
        },
        lambda: {
            "hidden_states": floats(BATCH, 2, 4, SIDE, SIDE),
            "timestep": timestep(),
            "encoder_hidden_states": words(),
        },
    ),
    "PriorTransformer": Component(
        {**HEADS, "num_layers": 1, "embedding_dim": 8, "num_embeddings": WORDS, "additional_embeddings": 4},
        lambda: {
            "hidden_states": floats(BATCH, 8),
            "timestep": timestep(),
            "proj_embedding": floats(BATCH, 8),
            "encoder_hidden_states": words(8),
        },
    ),
}
SCHEDULERS = "PNDM", "DDIM", "EulerDiscrete", "EulerAncestralDiscrete", "DPMSolverMultistep", "UniPCMultistep", "LCM"


class Pipeline(torch.nn.Module):
    """A pipeline as a module: its components are its children, so that it moves, copies and casts as they do."""

    def __init__(self, pipeline: Any, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict(
            {name: part for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)}
        )
        self.pipeline = pipeline
        self.arguments = arguments
        pipeline.set_progress_bar_config(disable=True)

    def forward(self, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        # The noise comes from the CPU's generator, as diffusers advises for results that do not depend on the device.
        generator = torch.Generator().manual_seed(0)
        images = self.pipeline(**tensors, **self.arguments, generator=generator, num_inference_steps=STEPS).images
        return {"images": torch.as_tensor(images)}


def preload() -> None:
    """Nothing: diffusers asks for devices when it is imported, which starts the runtime, and that cannot be forked."""


def names() -> list[str]:
    pipelines = [f"StableDiffusionPipeline with {name}" for name in SCHEDULERS]
    return [*MODELS, "DDPMPipeline", "DDIMPipeline", "DiTPipeline", "StableDiffusion3Pipeline", *pipelines]


def make(name: str, **more: Any) -> torch.nn.Module:
    import diffusers

    torch.manual_seed(0)
    return getattr(diffusers, name)(**(MODELS[name].arguments | more))


def make_pipeline(name: str) -> Case:
    import diffusers

    pipeline, _, scheduler = name.partition(" with ")
    if pipeline in ("DDPMPipeline", "DDIMPipeline"):
        scheduling = getattr(diffusers, pipeline.replace("Pipeline", "Scheduler"))()
        made = getattr(diffusers, pipeline)(unet=make("UNet2DModel"), scheduler=scheduling)
        return Case(Pipeline(made, {"output_type": "np"}), {})
    if pipeline == "DiTPipeline":
        transformer, coder = make("DiTTransformer2DModel", out_channels=8), make("AutoencoderKL")
        made = diffusers.DiTPipeline(transformer=transformer, vae=coder, scheduler=diffusers.DDIMScheduler())
        return Case(Pipeline(made, {"output_type": "np", "class_labels": [1, 2], "guidance_scale": 1.0}), {})
    if pipeline == "StableDiffusion3Pipeline":
        return stable_diffusion_3()
    options = {"skip_prk_steps": True} if scheduler == "PNDM" else {}
    scheduling = getattr(diffusers, scheduler + "Scheduler")(**options)
    parts = {"vae": make("AutoencoderKL"), "unet": make("UNet2DConditionModel"), "scheduler": scheduling}
    absent = dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    made = diffusers.StableDiffusionPipeline(**parts, **absent, requires_safety_checker=False)
    batch = {"prompt_embeds": words(), "negative_prompt_embeds": -words()}
    return Case(Pipeline(made, {"output_type": "pt", "height": 2 * SIDE, "width": 2 * SIDE}), batch)


def stable_diffusion_3() -> Case:
    import diffusers

    parts = {
        "transformer": make("SD3Transformer2DModel"),
        "vae": make("AutoencoderKL", shift_factor=0.1),
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(),
    }
    encoders = [f"{kind}{number}" for kind in ("text_encoder", "tokenizer") for number in ("", "_2", "_3")]
    made = diffusers.StableDiffusion3Pipeline(**parts, **dict.fromkeys(encoders))
    pooled = floats(BATCH, WIDTH)
    batch = {
        "prompt_embeds": words(),
        "negative_prompt_embeds": -words(),
        "pooled_prompt_embeds": pooled,
        "negative_pooled_prompt_embeds": -pooled,
    }
    return Case(Pipeline(made, {"output_type": "pt", "height": 2 * SIDE, "width": 2 * SIDE}), batch)


def make_case(name: str) -> Case:
    define_torchvision_operators()
    if name in MODELS:
        case = Case(make(name), MODELS[name].batch())
    else:
        case = make_pipeline(name)
    with torch.no_grad():
        case.model.eval()(**case.batch)
    size = sum(parameter.numel() for parameter in case.model.parameters())
    case.notes = {"class": name.split()[0], "plan": "", "parameters": size}
    return case
