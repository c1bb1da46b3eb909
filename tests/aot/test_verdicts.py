"""The TPU compiler takes our lowerings, but for those that are listed: a sample of operators that changes every day.

``TTPU_VERDICTS=all`` takes all operators; ``verdicts.py`` says how the files are made anew. Skipped without libtpu."""

import collections
import datetime
import os
import random
import zlib

import pytest
import verdicts

from torch_tpu.aot import Compiler, compiler

SHARE, AGAIN = 60, 6  # one operator in so many; and of the fragments with a verdict, so many are compiled again


def todays(names: list[str]) -> list[str]:
    """The operators whose turn it is."""
    if os.environ.get("TTPU_VERDICTS") == "all":
        return names
    day = datetime.date.today().toordinal()
    return [name for name in names if zlib.crc32(name.encode()) % SHARE == day % SHARE]


@pytest.mark.timeout(1200)
def test_fragments_have_the_verdicts_that_are_kept(libtpu, tmp_path):
    import suite

    verdicts.collect(tmp_path, todays(list(suite.OPERATORS)))
    fragments = verdicts.read_fragments(tmp_path)
    assert fragments
    known = verdicts.Verdicts()
    work = [(f, chip) for f in fragments for chip in verdicts.TOPOLOGIES if not known.knows(f, chip)]
    kept = [(f, chip) for f in fragments for chip in verdicts.TOPOLOGIES if known.knows(f, chip)]
    if compiler.library_version() != known.version:
        work, kept = [], work + kept  # another libtpu may judge otherwise: a sample of everything
    work += random.Random(len(kept)).sample(kept, min(AGAIN, len(kept)))
    made, wrong = Compiler(), []
    for fragment, chip in work:
        code, message = verdicts.compile_fragment(made, fragment, chip)
        listed = known.refused.get((fragment.hash, chip))
        same_row = any(known.rows[key] == fragment.row for key, _ in known.refused)
        if code and listed is None and not same_row:
            wrong.append(f"{chip} {fragment.row} {fragment.hash}: {code} {message}")
    made.close()
    assert not wrong, "the TPU compiler refuses what it took before (or is new):\n" + "\n".join(wrong)


def test_few_are_refused():
    known = verdicts.Verdicts()
    counts = collections.Counter(chip for chips in known.accepted.values() for chip in chips)
    refused = collections.Counter(chip for _, chip in known.refused)
    for chip in verdicts.TOPOLOGIES:
        assert counts[chip] >= 50 * refused[chip]
