"""What the general rules of the sweep do not find out about a model type, in one table.

`config` changes fields of the shrunk configuration, with dots into sub-configurations; `inputs` gives inputs a value,
or leaves them out with None; `plans` limits the ways to shrink.
"""

from typing import Any

SERIES = {"config": {"prediction_length": 8, "context_length": 16, "lags_sequence": [1, 2]}}
PLACEHOLDER = {"config": {"image_token_index": 127}}

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "aria": {"config": {"projector_patch_to_query_dict": {16: 8}}},
    "autoformer": SERIES,
    "blip-2": PLACEHOLDER,
    "informer": SERIES,
    "instructblip": PLACEHOLDER,
    "instructblipvideo": {"config": {"video_token_index": 127}},
    "time_series_transformer": SERIES,
}
