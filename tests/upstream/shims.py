"""Names that test files of older PyTorch versions import and the installed PyTorch has renamed or dropped.

Only what keeps a whole file from being imported belongs here. A stand-in never makes a test pass that would fail: a
renamed function is the new one, a list that is gone is empty, a decorator for another device leaves its test alone.
"""

import contextlib
import functools
import importlib

LISTS = "torch.testing._internal.common_methods_invocations"
UTILITIES = "torch.testing._internal.common_utils"
CUDA = "torch.testing._internal.common_cuda"
DEVICES = "torch.testing._internal.common_device_type"


def binary_ufuncs_and_refs() -> list:
    """The binary operators of the database and of the reference database."""
    module = importlib.import_module(LISTS)
    return [op for op in module.ops_and_refs if isinstance(op, module.BinaryUfuncInfo)]


def foreach_lerp() -> list:
    """The operators once in a list of their own."""
    module = importlib.import_module(LISTS)
    return [op for op in module.foreach_other_op_db if op.name == "_foreach_lerp"]


def skip_operators():
    """skipOps once took the names of class and test besides the list; both can be had from the test."""
    current = importlib.import_module(DEVICES).skipOps

    def skip_ops(*arguments):
        return current(arguments[-1])

    return skip_ops


def of(module: str, name: str):
    """Make the stand-in from what the installed PyTorch calls it."""
    return lambda: getattr(importlib.import_module(module), name)


def rename_clashes(instantiate):
    """Keep `test_x_cpu` apart from what newer versions make of `test_x` for cpu: they refuse a file that has both."""

    @functools.wraps(instantiate)
    def rename_and_instantiate(generic, *arguments, **options):
        for name in [name for name in vars(generic) if name.startswith("test") and name.endswith("_cpu")]:
            if name.removesuffix("_cpu") in vars(generic):
                setattr(generic, f"{name}_only", vars(generic)[name])
                delattr(generic, name)
        return instantiate(generic, *arguments, **options)

    return rename_and_instantiate


def drop_inherited_setup(instantiate):
    """Let the class made for a device own setUp and tearDown: older files call super(self.__class__, self).setUp().

    Newer versions make that class a subclass of the file's, where such a call finds the same method again.
    """

    @functools.wraps(instantiate)
    def instantiate_and_drop(generic, *arguments, **options):
        result = instantiate(generic, *arguments, **options)
        for name in ("setUp", "tearDown"):
            method = vars(generic).get(name)
            if method is not None and "__class__" in method.__code__.co_names:
                delattr(generic, name)
        return result

    return instantiate_and_drop


# module, the name that an older file imports from it, what makes the stand-in
STAND_INS = [
    (UTILITIES, "skipIfMps", of(UTILITIES, "skipIfMPS")),
    (UTILITIES, "dtype_abbrs", of("torch.utils._dtype_abbrs", "dtype_abbrs")),
    (CUDA, "tf32_is_not_fp32", lambda: lambda: False),
    ("torch.testing._internal.common_nn", "new_module_tests", lambda: []),
    (LISTS, "binary_ufuncs_and_refs", binary_ufuncs_and_refs),
    (LISTS, "foreach_lerp_op_db", foreach_lerp),
    (LISTS, "xfail", of(DEVICES, "xfail")),
    (LISTS, "skip", of(DEVICES, "skip")),
    (LISTS, "skipOps", skip_operators),
    ("torch._C", "has_mkldnn", of("torch._C", "_has_mkldnn")),
    ("torch._prims_common", "_torch_dtype_to_nvfuser_dtype_map", lambda: {}),
]


def install(source: str) -> None:
    """Put the stand-ins where they are missing, for the names that occur in the text of a file."""
    for module, name, make in STAND_INS:
        if name not in source:
            continue
        try:
            holder = importlib.import_module(module)
            if not hasattr(holder, name):
                setattr(holder, name, make())
        except (ImportError, AttributeError):  # gone altogether: the files that need it stay without baseline
            continue
    devices = importlib.import_module(DEVICES)
    instantiate = drop_inherited_setup(devices.instantiate_device_type_tests)
    devices.instantiate_device_type_tests = rename_clashes(instantiate)
    if "distutils" in source:  # older files take distutils.version from setuptools without naming the submodule
        with contextlib.suppress(ImportError):
            importlib.import_module("distutils.version")
