"""What the compiler makes of a graph: callable, and, as bytes, an entry of PyTorch's AOTAutograd cache.

With that a second process traces a model with Dynamo and then finds the forward and backward graph, instead of making
them again; the programs themselves are kept by the runtime's own cache (docs/compile.md). A graph also knows the lines
of the user's program, for messages of errors at run time, and shows its programs to who asks for them by ``TORCH_LOGS``
or ``TORCH_TRACE``. Imported by the first compilation alone: it takes parts of inductor that need time to load.
"""

import copy
import copyreg
import functools
import logging
import operator
import os
import re
from collections.abc import Sequence
from typing import Any

from torch._C import _functionalization
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._functorch._aot_autograd.functional_utils import ViewMetaSequence
from torch._guards import CompileContext, detect_fake_mode
from torch._inductor.output_code import OutputCode
from torch._logging import _internal as torch_logging
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx._graph_pickler import GraphPickler, Options

import torch
from torch_tpu import _C, control, flex
from torch_tpu._loader import __version__
from torch_tpu.host_part import Parts, split

_OPTIONS = Options(ops_filter=None, node_metadata_key_filter=lambda key: key == "stack_trace")
_output_code = torch_logging.getArtifactLogger("torch.tpu.compiled_graph", "output_code")  # PyTorch prints below torch
_REPLACED = {**flex.REPLACED, **control.REPLACED}
_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def _nothing() -> None:
    """What is kept of a view's operations that cannot be."""


def _kept_views(views: ViewMetaSequence) -> tuple:
    """A view's operations, for pickle: without them AOTAutograd makes the view by its strides.

    PyTorch 2.13 forgets the sizes of an ``_unsafe_view``, which a product of three dimensions is.
    """
    if any(isinstance(view, _functionalization._unsafe_view_ViewMeta) for view in views.sequence):
        return _nothing, ()
    return object.__reduce_ex__(views, 2)


copyreg.pickle(ViewMetaSequence, _kept_views)


@functools.lru_cache(1024)
def _location(stack_trace: str) -> str:
    """The innermost line of a traceback, as messages name it; "" where there is none."""
    found = _LINE.findall(stack_trace)
    return "{}:{}, in {}".format(*found[-1]) if found else ""


def _is_stacked(node: torch.fx.Node) -> bool:
    """Is it a result of a scan?"""
    return node.target is operator.getitem and getattr(node.args[0], "target", None) is control.scan


def with_locations(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of a graph that says before its operators which line of the user's program they come from.

    Operators of which this device knows more than PyTorch's definition are those then; so in the functions of branches
    and loops.
    """
    graph = copy.deepcopy(module.graph)
    said, functions = "", []
    for node in graph.nodes:
        location = _location(node.meta.get("stack_trace") or "") if node.op == "call_function" else said
        if location != said:
            with graph.inserting_before(node):
                graph.call_function(_C.set_location, (location,))
            said = location
        if node.op == "call_function" and node.target in control.REPLACED:
            functions += [x.target for x in node.args if isinstance(x, torch.fx.Node) and x.op == "get_attr"]
        node.target = _REPLACED.get(node.target, node.target) if node.op == "call_function" else node.target
        if node.target is torch.ops.aten.flip.default and _is_stacked(node.args[0]):
            node.target = control.flip_stacked
    copied = torch.fx.GraphModule(module, graph)
    for name in functions:
        if isinstance(getattr(module, name, None), torch.fx.GraphModule):
            setattr(copied, name, with_locations(getattr(module, name)))
    return copied


def _watcher(kind: str):
    """Who is shown the StableHLO of each program of a graph that is compiled now; None: nobody asks for it."""
    if not _output_code.isEnabledFor(logging.DEBUG) and not torch_logging.trace_log.handlers:
        return None
    compile_id, count = CompileContext.current_compile_id(), 0

    def show(text: str) -> None:
        nonlocal count
        name = f"stablehlo_{kind}_{count}"
        count += 1
        _output_code.debug("%s, compilation %s\n%s", name, compile_id, text)
        torch_logging.trace_structured_artifact(name, "string", lambda: text, compile_id)

    return show


class CompiledGraph(OutputCode):
    """A graph of ATen operators as a function that takes a list of arguments and empties it."""

    def __init__(self, module: torch.fx.GraphModule, kind: str):
        self._boxed_call = True
        self._kind = kind  # "forward", "backward" or "inference"
        self._bytes: bytes | None = None
        self._hold(split(module))

    def _hold(self, parts: Parts) -> None:
        self._parts = parts
        self._graph = parts.around(_C.Graph(with_locations(parts.device), _watcher(self._kind)))

    def __call__(self, inputs: list) -> Any:
        taken = list(inputs)
        inputs.clear()  # so that what nobody else holds is freed as soon as it is used
        return self._graph(taken)

    def prepare_for_serialization(self) -> None:
        """Become bytes; called on a copy that is to be pickled. A graph of which none can be made is not kept."""
        try:
            with unset_fake_temporarily():  # constants are real tensors
                self._bytes = GraphPickler.dumps(self._parts, _OPTIONS)
        except Exception as error:
            raise BypassAOTAutogradCache(f"the graph has no form as bytes: {error}") from error
        self._parts = self._graph = None

    def post_compile(self, example_inputs: Sequence, constants: Any, graph_kwargs: Any) -> None:
        """Come back from bytes; nothing for a graph that was just made."""
        if self._graph is None:
            parts = GraphPickler.loads(self._bytes, detect_fake_mode(example_inputs))
            for module in filter(None, (parts.device, parts.host)):
                module.recompile()
            self._bytes = None
            self._hold(parts)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There is no Triton here."""


def _shared_storages(inputs: Sequence) -> list[int]:
    """For each input the first one that has its storage: of this PyTorch's own key for a graph knows nothing."""
    first: dict[int, int] = {}
    tensors = enumerate(x for x in inputs if isinstance(x, torch.Tensor) and x.layout is torch.strided)
    return [first.setdefault(x.untyped_storage()._cdata, at) for at, x in tensors]


def cache_settings(inputs: Sequence) -> tuple[dict, dict]:
    """Settings of functorch and of inductor under which AOTAutograd keeps a graph with these inputs in its cache.

    Entries hold the compiled graph itself ("bundled"), not the key of one in inductor's cache, and so the backward
    graph has to be there when the forward one is. Inductor's list of functions with their keys is part of an entry's
    key: our build stands in it, so that an entry of another one is not found, and which inputs share memory.
    """
    build = os.stat(_C.__file__)
    ours = f"{__version__} {build.st_mtime_ns} {build.st_size} {_shared_storages(inputs)}"
    known = torch._inductor.config.unsafe_marked_cacheable_functions
    return (
        {"bundled_autograd_cache": True, "force_non_lazy_backward_lowering": True},
        {"unsafe_marked_cacheable_functions": {**known, "torch_tpu": ours}},
    )
