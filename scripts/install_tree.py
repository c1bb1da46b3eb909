"""Makes this tree's torch_tpu importable in the running interpreter, with its entry points.

An editable install without a build: a path file, the distribution's metadata and its console scripts. The libraries
inside torch_tpu/ are CMake's, so a rebuild needs nothing from here.
"""

import importlib.metadata
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent


def refuse_second_torch_tpu(name: str) -> None:
    """Another distribution that brings a package `torch_tpu` would hide ours, or be hidden by it."""
    others = set(importlib.metadata.packages_distributions().get("torch_tpu", [])) - {name}
    if others:
        sys.exit(f"make: {', '.join(sorted(others))} brings a package named torch_tpu too: pip uninstall it first.")


def main() -> None:
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    if not (TREE / "torch_tpu" / "__init__.py").exists():  # its entry point would make `import torch` fail
        sys.exit("make: torch_tpu/__init__.py is missing from this tree: check it out again.")
    refuse_second_torch_tpu(name)
    site, scripts = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("scripts"))
    for old in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)

    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    entry_points = [
        line
        for group, entries in groups.items()
        for line in [f"[{group}]", *(f"{k} = {v}" for k, v in entries.items())]
    ]
    written = []

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        written.append(path)

    info = site / f"{name}-{version}.dist-info"
    write(site / f"{name}.pth", f"{TREE}\n")
    write(info / "METADATA", "\n".join(metadata) + "\n")
    write(info / "entry_points.txt", "\n".join(entry_points) + "\n")
    write(info / "INSTALLER", "make\n")
    for command, target in project["scripts"].items():
        module, function = target.split(":")
        code = f"import sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        write(scripts / command, f"#!{sys.executable}\n{code}")
        (scripts / command).chmod(0o755)
    record = [f"{path},," for path in written] + [f"{info / 'RECORD'},,"]
    (info / "RECORD").write_text("\n".join(record) + "\n")


if __name__ == "__main__":
    main()
