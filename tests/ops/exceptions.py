"""Where tpu is known to differ from the CPU in PyTorch's databases.

The one list of them: the tests fail when a case differs that is not here, when an entry no longer differs, and when
the list becomes longer.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """An operator of the databases, and in which dtypes and aspects (suite.py) it differs, "*" for all; and why."""

    operator: str
    dtypes: str
    aspects: str
    reason: str
    always: bool = True  # else now and then: no test asks whether it still differs

    def covers(self, operator: str, dtype: str, aspect: str) -> bool:
        """Is that case among those of the entry?"""
        return (
            operator == self.operator
            and (self.dtypes == "*" or dtype in self.dtypes.split())
            and (self.aspects == "*" or aspect in self.aspects.split())
        )


SPARSE = "Sparse tensors do not exist on tpu."
FROM_HOST = "Results of LAPACK on the host are dense here; the CPU gives views of its work space."
BEYOND_IMAGE = "The CPU reads beyond large images in half dtypes: NaN of numbers, depending on what lies there."
UINT8_IMAGES = "The CPU interpolates uint8 images in fixed point with rounded weights; here in float32, rounded once."
CONTRACTED = "Scalar code of the CPU contracts a complex product; its vector code gives NaN for the same numbers."
ROUNDED_RESULT = "The gradient uses the rounded result, as fused attention does; the CPU composes it in float32."
RECURRENCE = (
    "In float32 a few results of the recurrence lose most digits, differently where the CPU contracts products."
)
FAR_PHASE = "Far left of 0 a float32 holds no phase: neither result has a correct digit."
FUSED_MOMENTUM = "The CPU's fused SGD mistakes momenta in half dtypes: they are not those of its own other forms."
JOINED_TARGETS = "The CPU reads joined targets that are not contiguous as if they were."
IGNORES_BIT = "The CPU's max_pool1d reads a tensor with the negative bit as if it had none."

EXCEPTIONS = [
    Difference("logsumexp", "complex64 complex128", "out", "The CPU gives NaN for a complex sum in a real out=."),
    Difference("lu", "*", "out", "torch.lu copies to out= in Python, whatever the device."),
    Difference("linalg.lstsq", "*", "metadata", FROM_HOST),
    Difference("linalg.lstsq.grad_oriented", "*", "metadata", FROM_HOST),
    Difference("native_batch_norm", "bfloat16 float16", "out", "In evaluation the CPU gives no saved statistics."),
    Difference("nn.functional.grid_sample", "bfloat16 float16", "reference", BEYOND_IMAGE, always=False),
    Difference("ldexp", "complex128", "reference", CONTRACTED),
    Difference("square", "complex64", "reference", CONTRACTED),
    Difference("nn.functional.scaled_dot_product_attention", "float16", "values", ROUNDED_RESULT),
    Difference("special.laguerre_polynomial_l", "uint8 uint16 uint32 uint64", "reference", RECURRENCE),
    Difference("special.airy_ai", "int16 int32 int64", "reference", FAR_PHASE),
    Difference("nn.functional.max_pool1d", "*", "views", IGNORES_BIT),
    Difference("_foreach_pow", "bool", "*", "bool has no pow; the CPU copies where the exponent is True."),
    Difference("sparse.mm.reduce", "*", "*", SPARSE),
    Difference("sparse.sampled_addmm", "*", "*", SPARSE),
    Difference("to_sparse", "*", "*", SPARSE),
    Difference("_upsample_bilinear2d_aa", "uint8", "*", UINT8_IMAGES),
    Difference("nn.functional.interpolate.bicubic", "uint8", "*", UINT8_IMAGES),
    Difference("nn.functional.interpolate.bilinear", "uint8", "*", UINT8_IMAGES),
    Difference("nn.functional.upsample_bilinear", "uint8", "*", UINT8_IMAGES),
    Difference("logcumsumexp", "complex64 complex128", "*", "The imaginary part differs by a multiple of 2 pi."),
    Difference("nn.CTCLoss", "*", "module", JOINED_TARGETS),
    Difference("optim.SGD", "bfloat16 float16", "optimizer", FUSED_MOMENTUM),
    Difference("optim.SparseAdam", "*", "optimizer", SPARSE),
]


def is_known(operator: str, dtype: str, aspect: str) -> bool:
    """Is the case an exception?"""
    return any(e.covers(operator, dtype, aspect) for e in EXCEPTIONS)
