"""What a PJRT plugin offers and lacks: the command ``ttpu plugin``."""

import json
import os

from torch_tpu import _C


def report(path: str | None = None, options: str | None = None) -> dict:
    """Load a plugin and ask it everything; see ``src/pjrt/report.c`` for the fields.

    Parameters
    ----------
    path
        The shared library; None takes the one that ``torch.tpu`` would use, and says why in ``reason``.
    options
        Options of its client, ``name=value,name:type=value``; None takes ``TTPU_PLUGIN_OPTIONS``.

    Raises
    ------
    RuntimeError
        If the library cannot be loaded or is no plugin. A plugin that is one but cannot be used is reported, with the
        reason in ``error``.
    """
    reason = None
    if path is None:
        path, reason = _C.plugin_choice()
    if options is None:
        options = os.environ.get("TTPU_PLUGIN_OPTIONS", "")
    found = json.loads(_C.plugin_report(path, options))
    found["reason"] = reason
    return found


def _version(numbers: list[int]) -> str:
    return ".".join(str(n) for n in numbers)


def _device(device: dict) -> str:
    known = [f"  {device['id']}: {device['kind']}"]
    if device["memory_limit"] > 0:
        known.append(f"{device['memory_limit'] / 2**30:.2f} GiB")
    if device.get("memories"):
        known.append("memories " + " ".join(device["memories"]))
    known += [f"{name} {value}" for name, value in device.get("attributes", {}).items()]
    return ", ".join(known)


def text(found: dict) -> str:
    """The report for people."""
    ours, theirs = (_version(found[k]) for k in ("client_api_version", "pjrt_api_version"))
    lines = [f"plugin      {found['path']}" + (f" ({found['reason']})" if found["reason"] else "")]
    lines.append(f"PJRT C API  {theirs} (this client: {ours}), a table of {found['table_bytes']} bytes")
    if found["unknown_functions"]:
        lines.append(f"            with {found['unknown_functions']} functions that this client does not know")
    lines.append(f"usable      {'yes' if found['usable'] else 'no: ' + found['error']}")
    if found["usable"]:
        lines.append(f"platform    {found['platform']} {found['platform_version']}".rstrip())
        lines += ["devices", *map(_device, found["devices"])]
    for name, value in found.get("attributes", {}).items():
        lines.append(f"attribute   {name} {_version(value) if isinstance(value, list) else value}")
    lines.append(f"extensions  {', '.join(found['extensions']) or 'none'}")
    lacking = [f"  {name}: nothing works without it" for name in found["missing_required"]]
    lacking += [f"  {entry['function']}: {entry['without']}" for entry in found["missing"]]
    lines += ["lacks", *lacking] if lacking else ["lacks       nothing that this client asks for"]
    if found["missing_unused"]:
        lines.append(f"and, not asked for: {', '.join(found['missing_unused'])}")
    if not found["software"] and found["usable"]:
        lines.append("programs    as StableHLO text; composites decomposed, checks as one more result")
    return "\n".join(lines)
