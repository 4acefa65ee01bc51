"""What the decoder is given and what is scored does not depend on who else is in the batch (T5 and BART alike)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Passage, Retrieved
from tests.generator.test_seq2seq import tiny_model


def retrieved(n_queries: int) -> Retrieved:
    """Two passages a query, the same for each query number whatever the batch."""
    passages = [
        [Passage(f"{row}", "1", f"{k}", "Peru", f"Lima {row} {k}") for k in range(2)] for row in range(n_queries)
    ]
    scores = np.array([[row % 3, 1.0] for row in range(n_queries)], dtype=np.float32)
    return Retrieved(passages, np.zeros((n_queries, 2), dtype=np.int64), None, scores, index_fingerprint="none")


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_an_example_alone_is_read_and_scored_as_among_64(
    family: str, label_smoothing: float, byte_level_tokenizer: Any
) -> None:
    generator = Seq2SeqGenerator(tiny_model(family, len(byte_level_tokenizer)), byte_level_tokenizer)
    model = RagModel(kind="rag_token", generator=generator)
    given: list[torch.Tensor] = []

    def note(module: Any, args: Any, kwargs: Any) -> None:
        given.append(kwargs["input_ids"])

    generator.model.get_decoder().register_forward_pre_hook(note, with_kwargs=True)
    queries, answers = [f"Who led {row}?" for row in range(64)], ["x" * (1 + row % 5) for row in range(64)]
    options: dict[str, Any] = {"label_smoothing": label_smoothing}
    with torch.no_grad():
        together = model(queries, answers, retrieved=retrieved(64), **options)
        alone = model(queries[:1], answers[:1], retrieved=retrieved(1), **options)
    torch.testing.assert_close(alone.smoothed_nll, together.smoothed_nll[:1], atol=1e-5, rtol=1e-5)
    among, single = given[0][0], given[-1][0]
    assert torch.equal(among[: len(single)], single)
    start = generator.decoder_start_token_id
    assert (given[0][:, 0] == start).all()
    labels = generator.inputs.labels(answers[:1], max_length=32)[0]
    assert single.tolist() == [start, *labels[:-1].tolist()]  # the start token once, every label but the last after it


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_a_one_token_answer_without_bos_is_scored(label_smoothing: float, byte_level_tokenizer: Any) -> None:
    generator = Seq2SeqGenerator(tiny_model("t5", len(byte_level_tokenizer)), byte_level_tokenizer)
    model = RagModel(kind="rag_sequence", generator=generator)
    output = model(["Who?"], ["x"], retrieved=retrieved(1), label_smoothing=label_smoothing)
    n_answer = len(byte_level_tokenizer("x", add_special_tokens=False)["input_ids"])
    assert output.n_tokens == n_answer + 1 == output.token_logprobs.shape[2]  # the answer and EOS
    assert (output.token_logprobs < 0).all() and output.nll.item() > 0
    output.loss.backward()
    weight = generator.model.get_output_embeddings().weight
    assert weight.grad is not None and weight.grad.abs().sum() > 0
