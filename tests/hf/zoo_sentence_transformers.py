"""The model kinds and losses of sentence-transformers over a tiny BERT, as cases of the sweep."""

import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

from torchvision_operators import define_torchvision_operators
from trial import Case

import torch

WORDS = "the a cat dog sat on mat ran far away is red blue house tree".split()
SENTENCES = ["the cat sat on the mat", "a dog ran far away"]
OTHERS = ["a dog sat on a house", "the tree is blue"]
POOLING = "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"
LOSSES = "CosineSimilarityLoss", "MultipleNegativesRankingLoss", "ContrastiveLoss", "CoSENTLoss", "AnglELoss", "MSELoss"


def preload() -> None:
    define_torchvision_operators()
    import sentence_transformers  # noqa: F401
    import transformers

    transformers.BertModel  # noqa: B018 - imports it


def names() -> list[str]:
    return [
        *(f"pooling {mode}" for mode in POOLING),
        *(f"loss {name}" for name in LOSSES),
        "dense and normalize",
        "cross encoder",
        "sparse encoder (SPLADE)",
    ]


def tiny_bert(folder: pathlib.Path, head: str = "BertModel") -> str:
    """A tiny BERT and its word tokenizer, in a folder as from the hub."""
    import transformers

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(tokens))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=1,
    )
    torch.manual_seed(0)
    getattr(transformers, head)(config).save_pretrained(folder)
    return str(folder)


class WithLoss(torch.nn.Module):
    """A loss of the library, which holds its model, called with keyword arguments."""

    def __init__(self, loss: torch.nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, features: list[dict[str, torch.Tensor]], labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.loss(features, labels)}


def embedder(folder: str, *more: torch.nn.Module, pooling: str = "mean") -> torch.nn.Module:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    transformer = Transformer(folder)
    return SentenceTransformer(modules=[transformer, Pooling(32, pooling_mode=pooling), *more], device="cpu")


def features(model: Any, texts: list[str]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.tokenize(texts).items() if torch.is_tensor(value)}


def make_embedding(folder: str, name: str) -> Case:
    from sentence_transformers.models import Dense, Normalize

    if name.startswith("pooling "):
        model = embedder(folder, pooling=name.split()[1])
    else:
        model = embedder(folder, Dense(32, 16), Normalize())
    return Case(model, {"input": features(model, SENTENCES)})


def make_loss_case(folder: str, name: str) -> Case:
    from sentence_transformers import losses

    model = embedder(folder)
    which = name.split()[1]
    loss = getattr(losses, which)(model)
    labels = torch.tensor([1.0, 0.0]) if which != "MSELoss" else torch.randn(2, 32)
    texts = [SENTENCES, OTHERS] if which != "MSELoss" else [SENTENCES]
    return Case(WithLoss(loss), {"features": [features(model, part) for part in texts], "labels": labels})


def make_cross_encoder(folder: str, _: str) -> Case:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(folder, num_labels=1, device="cpu")
    batch = dict(model.tokenizer(SENTENCES, OTHERS, padding=True, return_tensors="pt"))
    return Case(model.model, batch)


def make_sparse_encoder(folder: str, _: str) -> Case:
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(folder, device="cpu")
    return Case(model, {"input": features(model, SENTENCES)})


def make_case(name: str) -> Case:
    makers: dict[str, tuple[Callable[[str, str], Case], str]] = {
        "cross encoder": (make_cross_encoder, "BertForSequenceClassification"),
        "sparse encoder (SPLADE)": (make_sparse_encoder, "BertForMaskedLM"),
    }
    usual = (make_loss_case if name.startswith("loss ") else make_embedding, "BertModel")
    make, head = makers.get(name, usual)
    with tempfile.TemporaryDirectory() as folder:
        case = make(tiny_bert(pathlib.Path(folder), head), name)
    size = sum(parameter.numel() for parameter in case.model.parameters())
    case.notes = {"class": type(case.model).__name__, "plan": "", "parameters": size}
    return case
