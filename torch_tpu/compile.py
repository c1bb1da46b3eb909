"""``torch.compile`` on tpu: graphs recorded by the operators that eager mode has, each one program.

The backend's name is ``"tpu"``; a plain ``torch.compile(model)`` takes it for graphs on tpu. AOTAutograd makes a
forward and a backward graph. Each becomes a ``CompiledGraph`` over a ``_C.Graph``, which records the graph once for
each sizes it meets, through the lowerings of eager mode, and from then on runs it as one program without Python.
"""

import functools

import torch
from torch_tpu._imports import when_imported


def _devices(inputs) -> set[str]:
    """The kinds of device that a graph's inputs are on."""
    return {x.device.type for x in inputs if isinstance(x, torch.Tensor)}


def _is_on_tpu(module: torch.fx.GraphModule, inputs) -> bool:
    """Is it a graph for us: does it take, hold or make a tensor on tpu?"""
    if "tpu" in _devices(inputs) or "tpu" in _devices([*module.parameters(), *module.buffers()]):
        return True
    for node in module.graph.nodes:
        device, example = node.kwargs.get("device"), node.meta.get("example_value")
        if device is not None and torch.device(device).type == "tpu":
            return True
        if "tpu" in _devices(example if isinstance(example, tuple | list) else [example]):  # x.to("tpu")
            return True
    return False


def _save_state_and_run(operator, *args, **kwargs):
    """The device's generator as it was, and the result of a random operator."""
    return torch.tpu.get_rng_state(), operator(*args, **kwargs)


def _run_with_state(state, operator, *args, **kwargs):
    """A random operator once more, as it ran with that state."""
    now = torch.tpu.get_rng_state()
    torch.tpu.set_rng_state(state)
    result = operator(*args, **kwargs)
    torch.tpu.set_rng_state(now)
    return result


@functools.cache
def _know_random_operators() -> None:
    """Teach PyTorch's two operators that repeat random numbers (dropout under activation checkpointing) about tpu.

    They choose their implementation in a function of a fixed table of devices, which their own other implementations
    reach through a closure; ours stands before it in both places.
    """
    from torch._C import DispatchKey
    from torch._prims import rng_prims

    def before(chosen, tpu):
        @functools.wraps(chosen)
        def choose(*args, **kwargs):
            tensors = args[1:] if tpu is _save_state_and_run else args[2:]
            return (tpu if rng_prims.get_device(tensors, kwargs) == "tpu" else chosen)(*args, **kwargs)

        return choose

    for operator, tpu in (
        (rng_prims.run_and_save_rng_state, _save_state_and_run),
        (rng_prims.run_with_rng_state, _run_with_state),
    ):
        chosen = operator.py_kernels[DispatchKey.BackendSelect]
        choose = before(chosen, tpu)
        operator.py_kernels[DispatchKey.BackendSelect] = choose
        operator._dispatch_cache.clear()
        for kernel in (*operator.python_key_table.values(), *operator.py_kernels.values()):
            for cell in getattr(kernel, "__closure__", None) or ():
                if cell.cell_contents is chosen and kernel is not choose:
                    cell.cell_contents = choose


def _aot():
    """The compiler of whole models, with AOTAutograd in front. It is made anew for each: PyTorch changes it in use."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    from torch_tpu.compiled_graph import CompiledGraph

    def compiler(kind: str):
        return SerializableAOTDispatchCompiler(CompiledGraph, lambda module, inputs: CompiledGraph(module, kind))

    _know_random_operators()
    return aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )


def compile_on_tpu(module: torch.fx.GraphModule, inputs, **options):
    """Dynamo's backend ``"tpu"``. ``mode`` and ``options`` change nothing: there is one way to compile."""
    from torch_tpu.compiled_graph import cache_settings

    functorch, inductor = cache_settings(inputs)
    with torch._functorch.config.patch(functorch), torch._inductor.config.patch(inductor):
        compiled = _aot()(module, inputs)
    if hasattr(compiled, "_boxed_call"):  # AOTAutograd copies it from the function inside, which takes a list
        compiled._boxed_call = False
    return compiled


def _allow_flex_attention(module) -> None:
    """FlexAttention has a list of the devices that it lets pass; what it consists of runs on tpu."""
    validate = module._validate_device

    def _validate_device(query, key, value):
        if query.device.type != "tpu":
            validate(query, key, value)

    module._validate_device = _validate_device


def _choose_by_device(compile_elsewhere):
    """A compiler of graphs: ours for those on tpu, the given one for all others."""

    @functools.wraps(compile_elsewhere)
    def compile_graph(module, inputs, *args, **kwargs):
        if _is_on_tpu(module, inputs):
            return compile_on_tpu(module, inputs)
        return compile_elsewhere(module, inputs, *args, **kwargs)

    return compile_graph


def _choose_in_registry(module) -> None:
    """The backend ``"inductor"`` by its name in Dynamo's list, as the minifier's scripts take it."""
    from torch._dynamo.backends import registry

    registry._COMPILER_FNS["inductor"] = _choose_by_device(module.inductor)


def install() -> None:
    """Make plain ``torch.compile`` choose by the graph's devices.

    Its default backend, inductor, stays the default, with its checks of modes and options: only its last step, the
    call with a graph, is ours where the graph is on tpu. So nothing changes for other devices, and
    ``backend="inductor"`` works on tpu too.
    """
    wrapper = torch._TorchCompileInductorWrapper
    compile_elsewhere = wrapper.__call__

    @functools.wraps(compile_elsewhere)
    def compile_by_device(self, model_, inputs_):
        if _is_on_tpu(model_, inputs_):
            return compile_on_tpu(model_, inputs_)
        return compile_elsewhere(self, model_, inputs_)

    wrapper.__call__ = compile_by_device
    when_imported("torch._dynamo.backends.inductor", _choose_in_registry)
    when_imported("torch.nn.attention.flex_attention", _allow_flex_attention)
