"""A cross-encoder orders the candidates anew, and only them; what p(z|x) is made of then is what was asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

from ragx.errors import CheckpointError, ConfigError, ShapeError
from ragx.filters import PassageFilter
from ragx.protocols import Retriever
from ragx.records import GivenPassages, Passage, Retrieved
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.by_question import retrieve_by_question
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.given import GivenRetriever
from ragx.retriever.reranker import CrossEncoder, RerankedRetriever
from tests.retriever.conftest import SIZES, tiny_tokenizer

QUERIES = ["Who leads France?", "river in Berlin"]


@pytest.fixture(scope="session")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A function that saves a tiny cross-encoder with one label, two or three, and names its folder."""
    root = tmp_path_factory.mktemp("rankers")

    def make(labels: int) -> Path:
        folder = root / str(labels)
        if not folder.exists():
            torch.manual_seed(labels)
            BertForSequenceClassification(BertConfig(**SIZES, num_labels=labels)).save_pretrained(folder)
            tiny_tokenizer().save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def words(passages: list[Passage], tmp_path: Path) -> BM25Retriever:
    return BM25Retriever.build(passages, tmp_path / "words", edition="2016-12")


def logits(folder: Path, query: str, passage: Passage) -> np.ndarray:
    """One pair at a time, by transformers alone."""
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    inputs = tiny_tokenizer()(query, f"{passage.title} {passage.text}".strip(), return_tensors="pt")
    with torch.inference_mode():
        return model(**inputs).logits[0].numpy()


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_scores_are_the_logit_or_the_log_odds(
    ranker: Callable[[int], Path], passages: list[Passage], labels: int, batch_size: int
) -> None:
    encoder = CrossEncoder.from_pretrained(ranker(labels), batch_size=batch_size)
    found = encoder.scores([QUERIES[0]] * 6, passages)
    expected = [logits(ranker(labels), QUERIES[0], passage) for passage in passages]
    by_hand = [float(row[0]) if labels == 1 else float(row[1] - row[0]) for row in expected]
    np.testing.assert_allclose(found, by_hand, atol=1e-5)
    assert found.dtype == np.float32 and np.ptp(found) > 0.01


def test_the_candidates_alone_are_ordered_anew(ranker: Callable[[int], Path], words: BM25Retriever) -> None:
    encoder = CrossEncoder.from_pretrained(ranker(1))
    before = words.retrieve(QUERIES, 4)
    found = RerankedRetriever(words, encoder, candidates=4).retrieve(QUERIES, 2)
    assert isinstance(RerankedRetriever(words, encoder), Retriever)
    for b, query in enumerate(QUERIES):
        scores = encoder.scores([query] * 4, before.passages[b])
        order = np.argsort(-scores)[:2]
        assert found.passages[b] == [before.passages[b][z] for z in order]
        assert found.rows[b].tolist() == before.rows[b][order].tolist()
        np.testing.assert_allclose(found.doc_scores[b], scores[order], atol=1e-5)
    assert found.doc_embeds is None and found.doc_offsets is None
    assert {tuple(row[:2]) for row in before.rows} != {tuple(row) for row in found.rows}  # it is another order


class ByTitle(CrossEncoder):
    """Scores a passage by the number in its title."""

    def __init__(self, meanwhile: Callable[[], object] = bool) -> None:
        self.meanwhile = meanwhile

    def fingerprint(self) -> str:
        return "by title"

    def scores(self, queries: object, passages: object) -> np.ndarray:
        self.meanwhile()
        return np.array([float(passage.title) for passage in passages], dtype=np.float32)  # type: ignore[attr-defined]


def test_given_passages_are_all_read_whatever_other_questions_have() -> None:
    """One question has twenty, another two, of which a filter leaves one."""
    many = tuple(Passage(f"a{n}", "1", "0", f"{n}", "text") for n in range(20))
    few = (Passage("b0", "1", "0", "5", "text", acl=("staff",)), Passage("b1", "1", "0", "3", "text"))
    given = GivenRetriever({"many": GivenPassages(many), "few": GivenPassages(few)})
    reranked = RerankedRetriever(given, ByTitle(), candidates=50)
    for queries, best in ((["many", "few"], ["a19", "b0"]), (["few", "many"], ["b0", "a19"])):
        assert [row[0].source for row in reranked.retrieve(queries, 1).passages] == best
    found = reranked.retrieve(["few", "many"], 1, passage_filter=PassageFilter(acl=()))
    assert [row[0].source for row in found.passages] == ["b1", "a19"] and found.doc_scores.tolist() == [[3.0], [19.0]]
    with pytest.raises(ConfigError, match="n_docs must be at most 2, the passages given for 'few', got 3"):
        reranked.retrieve(["many", "few"], 3)
    for n_docs in (0, -1):
        with pytest.raises(ConfigError, match=f"n_docs must be >= 1, got {n_docs}"):
            reranked.retrieve(["many"], n_docs)


def test_an_answer_is_labelled_by_the_index_that_gave_it(build: Callable[..., Path], passages: list[Passage]) -> None:
    """The index is swapped while the cross-encoder reads; answers of a batch are of one edition."""
    numbered = [Passage(p.source, "1", "0", f"{n}", p.text) for n, p in enumerate(passages)]
    newer = [Passage(p.source, "2", "0", p.title, p.text) for p in numbered]
    dense, then = DenseRetriever.open(build(numbered, "then", edition="1")), build(newer, "now", edition="2")
    swaps = iter([then])
    encoder = ByTitle(lambda: [dense.swap(folder) for folder in list(swaps)[:1]])
    reranked, before = RerankedRetriever(dense, encoder, candidates=4), dense.fingerprint
    same = DenseRetriever.open(build(numbered, "same", edition="1"))
    label = RerankedRetriever(same, encoder, candidates=4).fingerprint
    found = reranked.retrieve(["a"], 2, query_embeds=torch.ones(1, 16))
    assert {p.version for p in found.passages[0]} == {"1"} and found.index_fingerprint == label
    assert dense.fingerprint != before and reranked.fingerprint != label

    dense.swap(build(numbered, "then", edition="1"))
    swaps = iter([then])
    filters = [PassageFilter(as_of="2016"), PassageFilter(as_of="2017")]
    both = retrieve_by_question(reranked, ["a", "b"], 2, filters=filters, query_embeds=torch.ones(2, 16))
    assert {p.version for row in both.passages for p in row} == {"2"}  # asked again, of one edition


def test_equal_scores_keep_the_retrievers_order(words: BM25Retriever) -> None:
    class Flat(CrossEncoder):
        def __init__(self) -> None: ...

        def fingerprint(self) -> str:
            return "flat"

        def scores(self, queries: object, passages: object) -> np.ndarray:
            return np.ones(len(passages), dtype=np.float32)  # type: ignore[arg-type]

    assert RerankedRetriever(words, Flat(), candidates=6).retrieve(QUERIES, 3).rows.tolist() == (
        words.retrieve(QUERIES, 3).rows.tolist()
    )


def test_the_retrievers_logits_keep_their_gradient(
    ranker: Callable[[int], Path], build: Callable[..., Path], passages: list[Passage]
) -> None:
    dense, embeds = DenseRetriever.open(build(passages)), torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    encoder = CrossEncoder.from_pretrained(ranker(1))
    chosen = RerankedRetriever(dense, encoder).retrieve(QUERIES, 3, query_embeds=embeds)
    kept = RerankedRetriever(dense, encoder, logits="retriever").retrieve(QUERIES, 3, query_embeds=embeds)
    assert kept.rows.tolist() == chosen.rows.tolist() and kept.doc_embeds is not None
    expected = np.einsum("bd,bkd->bk", embeds.numpy(), kept.doc_embeds)
    np.testing.assert_allclose(kept.doc_scores, expected, atol=1e-4)
    assert np.array_equal(kept.doc_embeds, np.load(dense._edition.directory / "embeddings.npy")[kept.rows])


def test_filters_reach_the_retriever_and_few_candidates_do(
    ranker: Callable[[int], Path], passages: list[Passage], tmp_path: Path
) -> None:
    dated = [Passage(p.source, p.version, p.chunk, p.title, p.text, valid_to="2015" if n < 4 else None)
             for n, p in enumerate(passages)]  # fmt: skip
    words = BM25Retriever.build(dated, tmp_path / "words", edition="x")
    reranked = RerankedRetriever(words, CrossEncoder.from_pretrained(ranker(1)), candidates=50)
    found = reranked.retrieve(QUERIES, 4, passage_filter=PassageFilter(as_of="2016"))
    assert found.rows.shape == (2, 2) and set(found.rows.ravel().tolist()) == {4, 5}
    assert reranked.retrieve(QUERIES, 6).rows.shape == (2, 6)
    given = GivenRetriever({"q": GivenPassages(tuple(passages)), "r": GivenPassages(tuple(passages[:2]))})
    assert RerankedRetriever(given, CrossEncoder.from_pretrained(ranker(1))).retrieve(["q", "r"], 1).rows.shape == (
        2,
        1,
    )


def test_the_fingerprint_covers_weights_tokenizer_and_settings(
    ranker: Callable[[int], Path], words: BM25Retriever
) -> None:
    one, other = CrossEncoder.from_pretrained(ranker(1)), CrossEncoder.from_pretrained(ranker(2))
    short = CrossEncoder.from_pretrained(ranker(1), max_length=8)
    variants = [
        RerankedRetriever(words, one),
        RerankedRetriever(words, other),
        RerankedRetriever(words, short),
        RerankedRetriever(words, one, candidates=3),
        RerankedRetriever(words, one, logits="retriever"),
    ]
    assert len({words.fingerprint, *(variant.fingerprint for variant in variants)}) == 6
    again = RerankedRetriever(words, CrossEncoder.from_pretrained(ranker(1)))
    assert again.fingerprint == variants[0].fingerprint == again.retrieve(["a"], 1).index_fingerprint
    assert again.manifest is words.manifest and again.edition == "2016-12"


def test_refusals(ranker: Callable[[int], Path], words: BM25Retriever, passages: list[Passage], tmp_path: Path) -> None:
    """FAULTS B10, for a reranker: a head that is not in the file would be random."""
    BertModel(BertConfig(**SIZES)).save_pretrained(tmp_path / "headless")
    tiny_tokenizer().save_pretrained(tmp_path / "headless")
    with pytest.raises(CheckpointError, match="reranker must hold every weight of .* without .*classifier"):
        CrossEncoder.from_pretrained(tmp_path / "headless")
    with pytest.raises(
        CheckpointError, match="reranker must be a folder or hub name with config, tokenizer and weights"
    ):
        CrossEncoder.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="reranker must have one label or two, got 3"):
        CrossEncoder.from_pretrained(ranker(3))
    with pytest.raises(ConfigError, match="reranker.max_length must be at most the model's 64, got 65"):
        CrossEncoder.from_pretrained(ranker(1), max_length=65)
    with pytest.raises(
        ConfigError, match=r"reranker.candidates must be >= 1, got 0(.|\n)*reranker.logits must be one of"
    ):
        RerankedRetriever(words, CrossEncoder.from_pretrained(ranker(1)), candidates=0, logits="both")
    shutil.copytree(ranker(1), tmp_path / "nan")
    model = BertForSequenceClassification.from_pretrained(tmp_path / "nan")
    model.classifier.bias.data.fill_(torch.nan)
    model.save_pretrained(tmp_path / "nan")
    with pytest.raises(ShapeError, match=r"reranker scores must be finite, got NaN or infinity for \('wiki:1', "):
        CrossEncoder.from_pretrained(tmp_path / "nan").scores(["a"], passages[:1])


def test_long_passages_are_cut_and_the_query_is_kept(ranker: Callable[[int], Path], words: BM25Retriever) -> None:
    encoder = CrossEncoder.from_pretrained(ranker(1), max_length=16)
    long = Passage("long", "1", "0", "", "Lima is the capital of Peru " * 50)
    longer = Passage("longer", "1", "0", "", "Lima is the capital of Peru " * 90)
    first, second = encoder.scores(["who leads france"] * 2, [long, longer])
    other = encoder.scores(["who leads germany"], [long])[0]
    assert first == pytest.approx(second, abs=1e-6) and abs(first - other) > 1e-3


def test_results_keep_the_form(ranker: Callable[[int], Path], words: BM25Retriever) -> None:
    found = RerankedRetriever(words, CrossEncoder.from_pretrained(ranker(2)), logits="retriever").retrieve(QUERIES, 2)
    assert isinstance(found, Retrieved) and found.rows.dtype == np.int64
    scores = np.stack([words.scores(query) for query in QUERIES])
    np.testing.assert_allclose(found.doc_scores, np.take_along_axis(scores, found.rows, 1))
