"""``torch.compile`` on tpu: graphs recorded by the operators that eager mode has, each one program.

The backend's name is ``"tpu"``; a plain ``torch.compile(model)`` takes it for graphs on tpu. AOTAutograd makes a
forward and a backward graph. Each becomes a ``_C.Graph``, which records the graph once for each sizes it meets, through
the lowerings of eager mode, and from then on runs it as one program without Python.
"""

import functools

import torch
from torch_tpu import _C
from torch_tpu._imports import when_imported


def _devices(inputs) -> set[str]:
    """The kinds of device that a graph's inputs are on."""
    return {x.device.type for x in inputs if isinstance(x, torch.Tensor)}


def _is_on_tpu(module: torch.fx.GraphModule, inputs) -> bool:
    """Is it a graph for us: does it take, hold or make a tensor on tpu?"""
    if "tpu" in _devices(inputs) or "tpu" in _devices([*module.parameters(), *module.buffers()]):
        return True
    for node in module.graph.nodes:
        device = node.kwargs.get("device")
        if device is not None and torch.device(device).type == "tpu":
            return True
    return False


def _compile_graph(module: torch.fx.GraphModule, inputs):
    """A graph of ATen operators as a function that takes a list of arguments and empties it."""
    graph = _C.Graph(module)

    def run(arguments):
        taken = list(arguments)
        arguments.clear()  # so that what nobody else holds is freed as soon as it is used
        return graph(taken)

    run._boxed_call = True
    return run


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


@functools.cache
def _aot():
    """The compiler of whole models, with AOTAutograd in front."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    _know_random_operators()
    return aot_autograd(
        fw_compiler=_compile_graph,
        bw_compiler=_compile_graph,
        inference_compiler=_compile_graph,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )


def compile_on_tpu(module: torch.fx.GraphModule, inputs, **options):
    """Dynamo's backend ``"tpu"``. ``mode`` and ``options`` change nothing: there is one way to compile."""
    return _aot()(module, inputs)


def _allow_flex_attention(module) -> None:
    """FlexAttention has a list of the devices that it lets pass; what it consists of runs on tpu."""
    validate = module._validate_device

    def _validate_device(query, key, value):
        if query.device.type != "tpu":
            validate(query, key, value)

    module._validate_device = _validate_device


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
    when_imported("torch.nn.attention.flex_attention", _allow_flex_attention)
