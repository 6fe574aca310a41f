"""Learning a fusion from labels: what is learned, when it is refused, and that its gain is measured honestly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support import HashEmbedder, prepare

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document
from thresher.corpus.errors import InvalidLabels
from thresher.corpus.retrieval.ranking import Ranking
from thresher.corpus.retrieval.tuning import GRID, MIN_QUESTIONS, Labelled, _held_out, kept_tuning, tune_fusion

QUESTIONS = 60


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """Documents whose rare word tells them apart for BM25, among others that hashed vectors take for nearer."""
    rng = np.random.default_rng(3)
    common = [f"common{i}" for i in range(30)]
    with Collection.create(tmp_path_factory.mktemp("tuning") / "c", HashEmbedder(8)) as opened:
        documents = []
        for i in range(200):
            text = " ".join([*rng.choice(common, 6), f"rare{i}"])
            documents.append(prepare(Document(f"d{i}", f"file:///d{i}", "", text), embedder=HashEmbedder(8)))
        opened.upsert(documents, source_id="s")
        yield opened


def by_word(count: int) -> list[Labelled]:
    return [Labelled(f"common{i % 30} common{(i + 7) % 30} rare{i}", (f"d{i}",)) for i in range(count)]


def test_a_weight_that_helps_is_learned_kept_and_used(collection: Collection) -> None:
    asked: list[tuple[int, int]] = []
    report = tune_fusion(collection, by_word(QUESTIONS), on_question=lambda i, n: asked.append((i, n)))
    assert asked == [(i, QUESTIONS) for i in range(QUESTIONS)]
    assert report.adopted
    assert report.alpha is not None
    assert report.alpha < 0.5  # BM25 is what works here
    assert report.gain_low > 0
    assert report.tuned_ndcg == pytest.approx(report.rrf_ndcg + report.gain)
    assert dict(report.curve)[report.alpha] == max(value for _, value in report.curve)
    assert [alpha for alpha, _ in report.curve] == list(GRID)
    tuning = kept_tuning(collection)
    assert tuning is not None
    assert (tuning.alpha, tuning.questions) == (report.alpha, QUESTIONS)
    query = "common3 rare77"
    fixed = collection.search(query, ranking=Ranking(f"convex:{report.alpha}"))
    assert collection.search(query, ranking=Ranking("tuned")) == fixed
    assert collection.search(query) != fixed


def test_labels_that_say_nothing_change_nothing(collection: Collection) -> None:
    rng = np.random.default_rng(11)
    noise = [
        Labelled(f"common{rng.integers(30)} common{rng.integers(30)}", (f"d{rng.integers(200)}",)) for _ in range(200)
    ]
    report = tune_fusion(collection, noise)
    assert report.informative >= MIN_QUESTIONS
    assert not report.adopted
    assert "beyond doubt" in report.reason
    tuning = kept_tuning(collection)
    assert tuning is not None
    assert tuning.alpha is None
    assert collection.search("common1 rare5", ranking=Ranking("tuned")) == collection.search("common1 rare5")


def test_too_few_labels_are_refused(collection: Collection) -> None:
    report = tune_fusion(collection, by_word(MIN_QUESTIONS - 1))
    assert not report.adopted
    assert report.alpha is None
    assert "too few labels" in report.reason
    assert kept_tuning(collection).alpha is None  # type: ignore[union-attr]
    # Questions whose gold no index finds do not make them more.
    found = set(collection.candidates("rare199").document.values())
    lost = next(f"d{i}" for i in range(200) if f"d{i}" not in found)
    report = tune_fusion(collection, [*by_word(5), *[Labelled("rare199", (lost,))] * 100])
    assert (report.questions, report.informative, report.adopted) == (105, 5, False)


def test_trying_does_not_touch_what_is_kept(collection: Collection) -> None:
    tune_fusion(collection, by_word(QUESTIONS))
    before = kept_tuning(collection)
    tune_fusion(collection, by_word(3), save=False)
    assert kept_tuning(collection) == before


def test_labels_that_cannot_be_right(collection: Collection) -> None:
    for labelled, says in (
        ([], "no labelled questions"),
        ([Labelled(" ", ("d1",))], "question 1 is blank"),
        ([Labelled("x", ("d1",)), Labelled("y", ())], "question 2 has no gold"),
        ([Labelled("x", ("nowhere",))], "nowhere"),
    ):
        with pytest.raises(InvalidLabels, match=says):
            tune_fusion(collection, labelled)
    partly = [Labelled("x", ("nowhere",)), Labelled("rare3", ("d3", "nowhere"))]
    report = tune_fusion(collection, [*by_word(QUESTIONS), *partly])
    assert report.unknown == 1
    assert report.questions == QUESTIONS + 1


def test_the_gain_is_that_of_questions_which_did_not_choose() -> None:
    """On noise, the best weight looks better than any honest estimate of it."""
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(30):
        scores = np.repeat(rng.random((len(GRID), 40, 1)), 2, axis=2)
        gaps.append(scores[:, :, 0].mean(axis=1).max() - _held_out(scores)[:, 0].mean())
    assert np.mean(gaps) > 0.05
    clear = np.zeros((len(GRID), 40, 2))
    clear[7] = 1.0
    assert (_held_out(clear) == 1.0).all()
