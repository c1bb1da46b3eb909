"""Checks who includes whom: the arrows between the folders of src/, as docs/design.md draws them."""

import re
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent

# Each folder and the folders that it may include, itself aside.
ALLOWED = {
    "base": set(),
    "ir": {"base"},
    "aten": {"base", "ir"},
    "pjrt": {"base", "ir"},
    "check": {"base", "ir", "pjrt"},
    "model": {"base", "ir", "pjrt"},
    "rt": {"base", "ir", "aten", "pjrt"},
    "aot": {"base", "pjrt"},
    "soft": {"base", "ir"},
    "torch": {"base", "ir", "aten", "pjrt", "rt", "check", "model"},
}
ALLOWED_FILES = {
    "soft": {"pjrt/abi.h", "pjrt/extension.h", "pjrt/functions.def", "pjrt/arguments.def"},
    "aot": {"soft/generations.def"},
    "torch": {"soft/generations.def"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def violations(path: Path) -> list[str]:
    """What the file includes and may not, a line each."""
    room = path.relative_to(TREE / "src").parts[0]
    found = []
    for match in INCLUDE.finditer(path.read_text()):
        name = match[1]
        other = name.split("/")[0]
        if "/" not in name or not (TREE / "src" / other).is_dir() or (path.parent / name).exists():
            if ".." in name or not ((path.parent / name).exists() or (TREE / "include" / name).exists()):
                found.append((match, f'"{name}": name it from src/ on, or as a file beside this one'))
            continue
        if other != room and other not in ALLOWED[room] and name not in ALLOWED_FILES.get(room, ()):
            found.append((match, f'{room} may not include "{name}"'))
    text = path.read_text()
    return [f"{path.relative_to(TREE)}:{text.count(chr(10), 0, m.start()) + 1}: {what}" for m, what in found]


def main() -> int:
    files = [p for p in sorted((TREE / "src").rglob("*")) if p.suffix in {".c", ".h", ".cpp", ".def"}]
    unknown = {p.relative_to(TREE / "src").parts[0] for p in files} - ALLOWED.keys()
    problems = [f"src/{room}: not in scripts/check_arrows.py" for room in sorted(unknown)]
    problems += [line for p in files if p.relative_to(TREE / "src").parts[0] in ALLOWED for line in violations(p)]
    print("\n".join(problems), end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
