"""Rerankers that run a model here: real models of random weights, saved and loaded as any other."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

from thresher.corpus.errors import RerankError
from thresher.corpus.retrieval.rerank import load_reranker

WORDS = ["harbour", "storm", "stone", "ferry", "island", "fox", "who", "built", "the", "old", "."]
TEXTS = ["the old harbour", "storm . storm", "who built the ferry", "", "stone " * 200, "fox"]


def save_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q]", "[D]", *WORDS]
    tokenizer = BertTokenizerFast(vocab={word: place for place, word in enumerate(words)}, model_max_length=64)
    assert tokenizer.tokenize("the old fox") == ["the", "old", "fox"]
    tokenizer.save_pretrained(folder)


def config(labels: int = 1) -> BertConfig:
    return BertConfig(
        vocab_size=7 + len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=labels,
        initializer_range=0.5,
    )


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_cross_encoder(tmp_path_factory.mktemp("models") / "cross")


def saved_cross_encoder(folder: Path, labels: int = 1) -> Path:
    torch.manual_seed(7)
    save_tokenizer(folder)
    BertForSequenceClassification(config(labels)).eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model laid out as PyLate lays it out."""
    torch.manual_seed(8)
    folder = tmp_path_factory.mktemp("models") / "colbert"
    save_tokenizer(folder)
    BertModel(config(), add_pooling_layer=False).eval().save_pretrained(folder)
    (folder / "1_Dense").mkdir()
    save_file({"linear.weight": torch.randn(8, 16)}, folder / "1_Dense" / "model.safetensors")
    files = {
        "1_Dense/config.json": {
            "in_features": 16,
            "out_features": 8,
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
        ],
        "sentence_bert_config.json": {"max_seq_length": 31, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "model_type": "ColBERT",
            "query_prefix": "[Q]",
            "document_prefix": "[D]",
            "query_length": 12,
            "document_length": 30,
            "attend_to_expansion_tokens": False,
            "do_query_expansion": True,
            "skiplist_words": ["."],
            "similarity_fn_name": "MaxSim",
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_a_cross_encoder_scores_as_its_own_library_does(cross_encoder: Path) -> None:
    reranker = load_reranker(f"st:{cross_encoder}?device=cpu&batch_size=2")
    scores = reranker.scores("who built the old harbour", TEXTS)
    model = CrossEncoder(str(cross_encoder), device="cpu", activation_fn=torch.nn.Identity())
    expected = model.predict([("who built the old harbour", text) for text in TEXTS], show_progress_bar=False)
    assert scores == pytest.approx(expected.tolist(), abs=1e-5)
    assert len(set(scores)) == len(TEXTS)  # logits: no two rounded to one
    assert any(not 0 <= score <= 1 for score in scores)
    assert reranker.scores("who built the old harbour", TEXTS[::-1]) == pytest.approx(scores[::-1], abs=1e-5)
    assert reranker.scores("anything", []) == []
    assert len(reranker.scores("lone \ud800 surrogate", ["\udfff"])) == 1


def test_long_texts_are_cut_and_the_limit_can_be_lowered(cross_encoder: Path) -> None:
    full = load_reranker(f"st:{cross_encoder}?device=cpu")
    short = load_reranker(f"st:{cross_encoder}?device=cpu&max_tokens=8")
    text = "harbour storm stone ferry island fox harbour storm"
    assert full.scores("fox", ["stone " * 500]) == pytest.approx(full.scores("fox", ["stone " * 900]), abs=1e-5)
    assert short.scores("fox", [text]) == pytest.approx(short.scores("fox", [f"{text} {text}"]), abs=1e-5)
    assert full.scores("fox", [text]) != pytest.approx(full.scores("fox", [f"{text} {text}"]), abs=1e-4)


def test_threads_share_one_model(cross_encoder: Path) -> None:
    reranker = load_reranker(f"st:{cross_encoder}?device=cpu")
    results: list[list[float]] = []
    threads = [threading.Thread(target=lambda: results.append(reranker.scores("fox", TEXTS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result == pytest.approx(results[0], abs=1e-6) for result in results)
    reranker.close()
    assert reranker.scores("fox", TEXTS) == pytest.approx(results[0], abs=1e-6)


def test_late_interaction_is_the_sum_of_best_matches(colbert: Path) -> None:
    reranker = load_reranker(f"pylate:{colbert}?device=cpu&batch_size=2")
    texts = ["the old harbour", "storm . storm", "who built the ferry"]
    scores = reranker.scores("who built the harbour", texts)
    model = MultiVectorEncoder(str(colbert), device="cpu")
    query = model.encode_query(["who built the harbour"], convert_to_numpy=True)[0]
    passages = model.encode_document(texts, convert_to_numpy=True)
    assert query.shape == (12, 8)  # expanded to the model's own query length
    assert [len(passage) for passage in passages] == [6, 5, 7]  # [CLS] [D] … [SEP], without the full stop
    assert np.linalg.norm(query, axis=1) == pytest.approx(1, abs=1e-3)
    expected = [float(np.sum(np.max(query @ passage.T, axis=1))) for passage in passages]
    assert scores == pytest.approx(expected, abs=1e-3)
    assert len(set(scores)) == 3
    assert reranker.spec == f"pylate:{colbert}?device=cpu&batch_size=2"


def test_what_is_no_model_is_refused_when_it_is_used(tmp_path: Path) -> None:
    for spec in (f"st:{tmp_path}/nothing", f"pylate:{tmp_path}/nothing"):
        reranker = load_reranker(spec)
        with pytest.raises(RerankError, match="cannot load the reranker"):
            reranker.scores("fox", ["fox"])
    two = load_reranker(f"st:{saved_cross_encoder(tmp_path / 'two', labels=2)}?device=cpu")
    with pytest.raises(RerankError, match="2 outputs"):
        two.scores("fox", ["fox"])


def test_weights_that_give_nan_are_an_error(tmp_path: Path) -> None:
    folder = saved_cross_encoder(tmp_path / "nan")
    model = BertForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    model.save_pretrained(folder)
    with pytest.raises(RerankError, match="no finite number"):
        load_reranker(f"st:{folder}?device=cpu").scores("fox", ["fox", "storm"])


@pytest.mark.parametrize("spec", ["", "st:", "pylate:", "cross-encoder/x", "endpoint", "minilm"])
def test_unknown_specs_are_refused_with_the_choices(spec: str) -> None:
    with pytest.raises(RerankError, match="choose one of"):
        load_reranker(spec)


@pytest.mark.parametrize("options", ["?batch_size=0", "?max_tokens=many", "?colour=red", "?device", "?max_tokens=-1"])
def test_options_are_checked_at_once(options: str) -> None:
    with pytest.raises(RerankError, match="options of the reranker"):
        load_reranker(f"st:name{options}")
