"""What the general rules of the sweep do not find out about a model type, in one table.

`config` changes fields of the shrunk configuration, with dots into sub-configurations; `inputs` gives inputs a value,
or leaves them out with None; `plans` limits the ways to shrink.
"""

from typing import Any

import torch

SERIES = {"config": {"prediction_length": 8, "context_length": 16, "lags_sequence": [1, 2]}}
PLACEHOLDER = {"config": {"image_token_index": 127}}

TILES = {
    "config": {"image_grid_pinpoints": [[56, 56]]},
    "inputs": {
        "pixel_values": lambda facts: facts.floats(2, 2, 3, 56, 56),
        "image_sizes": lambda _: torch.tensor([[56, 56]] * 2),
    },
}
PATCHES = {"config": {"mm_tokens_per_image": 4}}
ROTARY = {"config": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}}

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "align": {
        "config": {"vision_config.width_coefficient": 0.5, "vision_config.depth_coefficient": 1.0},
        "plans": ["fewer layers"],
    },
    "dbrx": {"config": {"attn_config.rope_theta": 10000.0}},
    "deepseek_v2": {"config": {"num_experts_per_tok": 2}},
    "efficientnet": {
        "config": {"hidden_dim": 640, "width_coefficient": 0.5, "depth_coefficient": 1.0},
        "plans": ["fewer layers"],
    },
    "emu3": {"config": {"pad_token_id": 0}},
    "esm": {"config": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32}},
    "gpt_neo": {"config": {"attention_types": [[["global", "local"], 1]]}},
    "aria": {"config": {"projector_patch_to_query_dict": {16: 8}}},
    "autoformer": SERIES,
    "blip-2": PLACEHOLDER,
    "gemma3": PATCHES,
    "hunyuan_v1_dense": {"config": {**ROTARY["config"], "head_dim": 16}},
    "hunyuan_v1_moe": {"config": {**ROTARY["config"], "head_dim": 16}},
    "informer": SERIES,
    "llava_next": TILES,
    "llava_next_video": TILES,
    "llava_onevision": TILES,
    "ministral": {"config": {"head_dim": 16}},
    "nemotron": {"config": {"num_key_value_heads": 2}},
    "oneformer": {"inputs": {"task_inputs": lambda facts: facts.tokens(2, 77)}},
    "pi0": {
        "inputs": {
            "state": lambda facts: facts.floats(2, facts.get("max_state_dim", default=32)),
            "actions": lambda facts: facts.floats(2, 4, facts.get("max_action_dim", default=32)),
        }
    },
    "pop2piano": {"inputs": {"input_ids": None, "attention_mask": None}},
    "shieldgemma2": PATCHES,
    "speech-encoder-decoder": {"inputs": {"input_features": None}},
    "t5gemma2": PATCHES,
    "timesfm": {
        "inputs": {
            "past_values": lambda facts: facts.floats(2, 64),
            "past_values_padding": lambda _: torch.zeros(2, 64, dtype=torch.int64),
            "freq": lambda _: torch.zeros(2, 1, dtype=torch.int64),
        }
    },
    "videomt": {"inputs": {"pixel_values_videos": lambda facts: facts.floats(2, 2, 3, 64, 64), "pixel_values": None}},
    "xmod": {"config": {"default_language": "en_XX"}},
    "instructblip": PLACEHOLDER,
    "instructblipvideo": {"config": {"video_token_index": 127}},
    "time_series_transformer": SERIES,
}
