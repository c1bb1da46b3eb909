"""How a program's arguments are cut over the devices of a mesh.

A mesh names its axes and their lengths, ``{"data": 2, "model": 2}``; its devices count along the last axis first. A
tensor's sharding is a tuple with an entry a dimension: an axis's name, a tuple of several, or None for a dimension that
is not cut; dimensions beyond its end are not cut either. Shardings are given by patterns of names (``fnmatch``), of
which the first that matches holds; what none matches is whole on every device. The TPU compiler decides about all else
and puts in the collectives.
"""

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence

Axes = str | tuple[str, ...] | None
Sharding = Sequence[Axes]


def data_parallel(axis: str = "data") -> dict[str, Sharding]:
    """Shardings that cut every input of the program along its first dimension, the batch."""
    return {"args.*": (axis,)}


def tensor_parallel(columns: Iterable[str], rows: Iterable[str], axis: str = "model") -> dict[str, Sharding]:
    """Shardings of linear layers in pairs, each on its own part of the features in between, as in Megatron-LM.

    Parameters
    ----------
    columns
        Patterns of the first layers' names (``"*.q_proj"``): their ``weight`` [out, in] and ``bias`` are cut along out.
    rows
        Patterns of the second layers' names: their ``weight`` is cut along in, their ``bias`` is whole.
    axis
        The mesh's axis.
    """
    shardings: dict[str, Sharding] = {}
    for name in columns:
        shardings[f"{name}.weight"] = shardings[f"{name}.bias"] = (axis,)
    for name in rows:
        shardings[f"{name}.weight"] = (None, axis)
    return shardings


def find(name: str, shardings: Mapping[str, Sharding]) -> Sharding | None:
    """The sharding of a name; None where no pattern matches."""
    return next((value for pattern, value in shardings.items() if fnmatch.fnmatchcase(name, pattern)), None)


def _axes(entry: Axes) -> tuple[str, ...]:
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def annotation(name: str, dims: Sequence[int], sharding: Sharding, mesh: Mapping[str, int]) -> str:
    """XLA's text for a sharding of a tensor of these dims: ``{devices=[2,1,2]<=[4] last_tile_dim_replicate}``.

    Raises
    ------
    ValueError
        If the sharding has more entries than the tensor dimensions, names an axis that the mesh lacks or twice, or cuts
        a dimension that its axes' lengths do not divide.
    """
    if len(sharding) > len(dims):
        if not dims:
            return "{replicated}"
        raise ValueError(f"{name} has {len(dims)} dimensions, but its sharding {tuple(sharding)} has {len(sharding)}")
    cut = [_axes(entry) for entry in sharding] + [()] * (len(dims) - len(sharding))
    used = [axis for axes in cut for axis in axes]
    for axis in used:
        if axis not in mesh:
            raise ValueError(f"{name}'s sharding {tuple(sharding)} names {axis!r}; the mesh has {', '.join(mesh)}")
        if used.count(axis) > 1:
            raise ValueError(f"{name}'s sharding {tuple(sharding)} uses the axis {axis!r} twice")
    tiles = [math.prod(mesh[axis] for axis in axes) for axes in cut]
    for dim, (size, tile) in enumerate(zip(dims, tiles, strict=True)):
        if size % tile != 0:
            raise ValueError(f"{name}'s dimension {dim} of size {size} is not divisible over {tile} devices")
    if math.prod(tiles) == 1:
        return "{replicated}"
    rest = [axis for axis in mesh if axis not in used]
    copies = math.prod(mesh[axis] for axis in rest)
    order = [list(mesh).index(axis) for axis in used + rest]
    extents = ",".join(map(str, tiles + ([copies] if copies > 1 else [])))
    permuted = "" if order == sorted(order) else f"T({','.join(map(str, order))})"
    devices = f"[{','.join(str(mesh[axis]) for axis in mesh)}]" if permuted else f"[{math.prod(mesh.values())}]"
    last = " last_tile_dim_replicate" if copies > 1 else ""
    return f"{{devices=[{extents}]<={devices}{permuted}{last}}}"
