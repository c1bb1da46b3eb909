"""Where tpu is known to differ from the CPU in PyTorch's operator database.

The one list of them: test_opinfo.py fails when an operator differs that is not here, when one that is here agrees, and
when the list becomes longer.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """An operator of the database, the dtypes in which it differs ("*": all that it has), and why."""

    operator: str
    dtypes: str
    reason: str


STATISTICS = "The CPU rounds the saved statistics to the input's half dtype; here, as on CUDA, they stay float32."
SPARSE = "Sparse tensors do not exist on tpu."
NO_COMPLEX_HALF = "A TPU has no complex numbers of two float16."
UINT8_IMAGES = "The CPU interpolates uint8 images in fixed point with rounded weights; here in float32, rounded once."

EXCEPTIONS = [
    Difference("_batch_norm_with_update", "bfloat16 float16", STATISTICS),
    Difference("_native_batch_norm_legit", "bfloat16 float16", STATISTICS),
    Difference("native_batch_norm", "bfloat16 float16", STATISTICS),
    Difference("native_layer_norm", "bfloat16 float16", STATISTICS),
    Difference("chalf", "*", NO_COMPLEX_HALF),
    Difference("complex", "float16", NO_COMPLEX_HALF),
    Difference("view_as_complex", "float16", NO_COMPLEX_HALF),
    Difference("sparse.mm.reduce", "*", SPARSE),
    Difference("sparse.sampled_addmm", "*", SPARSE),
    Difference("to_sparse", "*", SPARSE),
    Difference("_upsample_bilinear2d_aa", "uint8", UINT8_IMAGES),
    Difference("nn.functional.interpolate.bicubic", "uint8", UINT8_IMAGES),
    Difference("nn.functional.interpolate.bilinear", "uint8", UINT8_IMAGES),
    Difference("nn.functional.upsample_bilinear", "uint8", UINT8_IMAGES),
    Difference("logcumsumexp", "complex64", "The imaginary part differs by a multiple of 2 pi."),
]
