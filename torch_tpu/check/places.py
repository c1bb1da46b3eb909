"""Where in somebody's program an operator is called: files, lines, and which of them are the program's own."""

import functools
import linecache
import os
import pathlib
import sys
import sysconfig
import tokenize
import traceback
import types
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch_tpu


class Place(NamedTuple):
    """A line of a file, and the function that it is in."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}"

    @property
    def text(self) -> str:
        """The line itself, without its indentation, and what follows an open bracket at its end."""
        text = linecache.getline(self.file, self.line).strip()
        for more in range(1, _MOST_LINES):
            if not text.endswith(("(", "[", "{", ",")):
                break
            text += (" " if text.endswith(",") else "") + linecache.getline(self.file, self.line + more).strip()
        return text


NOWHERE = Place("", 0, "")

_MOST_LINES = 3  # of a statement that are shown
BACKEND, LIBRARY, PROGRAM = "backend", "library", "program"
_BACKEND_FOLDERS = tuple(str(pathlib.Path(package.__file__).parent) + os.sep for package in (torch, torch_tpu))
_LIBRARY_FOLDERS = tuple(
    sorted(
        {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        | {folder + os.sep for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))},
        key=lambda folder: -len(folder),  # the innermost first
    )
)


@functools.cache
def kind_of(file: str) -> str:
    """Whose a file is: PyTorch's and this package's, another library's, or the program's own."""
    if file.startswith((*_BACKEND_FOLDERS, "<frozen ", "<eval_with_key>")):
        return BACKEND
    if file.startswith(("<", *_LIBRARY_FOLDERS)):
        return LIBRARY
    return PROGRAM


def shown(file: str) -> str:
    """A path as people want to read it: from the working directory or from the package's folder on."""
    for folder in _LIBRARY_FOLDERS:
        if file.startswith(folder):
            return file.removeprefix(folder)
    here = os.getcwd() + os.sep
    return file.removeprefix(here)


def find_places(frame: types.FrameType | None) -> tuple[Place, Place]:
    """The innermost lines of a stack that are outside of PyTorch, and that are the program's own.

    Either is ``NOWHERE`` if the stack has no such line.
    """
    call = NOWHERE
    while frame is not None:
        file = frame.f_code.co_filename
        kind = kind_of(file)
        if kind != BACKEND and (call is NOWHERE or kind == PROGRAM):
            place = Place(file, frame.f_lineno, frame.f_code.co_name)
            if kind == PROGRAM:
                return (place if call is NOWHERE else call), place
            call = place
        frame = frame.f_back
    return call, NOWHERE


def place_of_error(error: BaseException) -> Place:
    """The program's own line in which an exception arose, else the innermost line outside of PyTorch."""
    frames = traceback.extract_tb(error.__traceback__)
    for wanted in ((PROGRAM,), (LIBRARY,)):
        for entry in reversed(frames):
            if kind_of(entry.filename) in wanted:
                return Place(entry.filename, entry.lineno or 0, entry.name)
    return NOWHERE


def program_files() -> list[str]:
    """The Python files of the program that are loaded now."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(file for file in files if file and file.endswith(".py") and kind_of(file) == PROGRAM)


def _names_cuda(token: tokenize.TokenInfo) -> bool:
    """Is it a name or a text that chooses a CUDA device, not a comment or a sentence?"""
    if token.type == tokenize.NAME:
        return token.string == "cuda"
    return token.type == tokenize.STRING and token.string.strip("rbfuRBFU'\"").split(":")[0] == "cuda"


def lines_naming_cuda(files: Iterable[str]) -> list[Place]:
    """The lines whose code names cuda."""
    found: dict[tuple[str, int], Place] = {}
    for file in files:
        try:
            with tokenize.open(file) as source:
                for token in tokenize.generate_tokens(source.readline):
                    if _names_cuda(token):
                        found.setdefault((file, token.start[0]), Place(file, token.start[0], ""))
        except (OSError, SyntaxError, tokenize.TokenError):
            continue  # not Python that this interpreter reads: nothing to point at
    return list(found.values())
