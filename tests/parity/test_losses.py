"""Our losses against transformers' RAG: equal where it is right, both values shown where it is not.

transformers scores `labels` shifted left by one (labels[0] is only read), masks by the pad id, and sums over the batch.
With that translated, values and gradients agree; the second half of this file lists what does not, and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ragx.losses import label_smoothing, rag_sequence, rag_token
from ragx.losses.prior import doc_logprobs
from ragx.losses.token_logprobs import linear_token_logprobs, token_logprobs

transformers = pytest.importorskip("transformers")

PAD, BOS, EOS, VOCAB, N_DOCS = 1, 0, 2, 40, 3
Likelihood = Callable[[Tensor, Tensor], Tensor]
OURS: dict[str, Likelihood] = {"rag_sequence": rag_sequence.nll, "rag_token": rag_token.nll}
BOTH = pytest.mark.parametrize("kind", list(OURS))


def build_peer(kind: str) -> Any:
    """A RAG model of transformers with random weights, in eval mode."""
    question = transformers.DPRConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    generator = transformers.BartConfig(
        vocab_size=VOCAB, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64, init_std=0.5,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=EOS,
    )  # fmt: skip
    config = transformers.RagConfig.from_question_encoder_generator_configs(
        question, generator, n_docs=N_DOCS, retrieval_vector_size=16
    )
    torch.manual_seed(0)
    name = {"rag_sequence": "RagSequenceForGeneration", "rag_token": "RagTokenForGeneration"}[kind]
    return getattr(transformers, name)(config).eval()


@pytest.fixture(scope="module")
def peers() -> dict[str, Any]:
    """One peer per model kind."""
    return {kind: build_peer(kind) for kind in OURS}


def shifted(labels: Tensor) -> Tensor:
    """The targets that the peer scores: its labels shifted left, its pad id as -100."""
    target = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], PAD)], 1)
    return target.masked_fill(target == PAD, -100)


def ours(kind: str, logits: Tensor, doc_scores: Tensor, target: Tensor) -> Tensor:
    """Our -log p(y|x), (B,), from the peer's (B*K, T, V) logits."""
    unfolded = logits.view(*doc_scores.shape, *logits.shape[1:])
    tokens = token_logprobs(unfolded, target.unsqueeze(1).expand(unfolded.shape[:3]))
    return OURS[kind](tokens, doc_logprobs(doc_scores))


def random_inputs(lengths: list[int], seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Logits (B*K, T, V), doc_scores (B, K), labels (B, T): BOS, tokens, EOS, pads; `lengths` counts all but pads."""
    generator = torch.Generator().manual_seed(seed)
    length = max(lengths)
    labels = torch.randint(3, VOCAB, (len(lengths), length), generator=generator)
    labels[:, 0] = BOS
    for row, real in enumerate(lengths):
        labels[row, real - 1] = EOS
        labels[row, real:] = PAD
    logits = torch.randn(len(lengths) * N_DOCS, length, VOCAB, generator=generator) * 4
    return logits.to(dtype), torch.randn(len(lengths), N_DOCS, generator=generator).to(dtype) * 3, labels


# --------------------------------------------------------------------------------- equal where the peer is right


@BOTH
@pytest.mark.parametrize("seed", range(5))
def test_losses_and_gradients_agree(peers: dict[str, Any], kind: str, seed: int) -> None:
    logits, scores, labels = random_inputs([7, 4, 3], seed)
    results = []
    for loss in (
        lambda logits, scores: peers[kind].get_nll(logits, scores, labels, n_docs=N_DOCS),
        lambda logits, scores: ours(kind, logits, scores, shifted(labels)),
    ):
        inputs = logits.clone().requires_grad_(), scores.clone().requires_grad_()
        value = loss(*inputs)
        results.append((value.detach(), *torch.autograd.grad(value.sum(), inputs)))
    torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-5)


def test_token_marginals_agree(peers: dict[str, Any]) -> None:
    logits, scores, labels = random_inputs([5, 5])
    theirs = peers["rag_token"].marginalize(logits, scores, N_DOCS)  # (B, T, V)
    target = shifted(labels)
    unfolded = logits.view(2, N_DOCS, 5, VOCAB)
    tokens = token_logprobs(unfolded, target.unsqueeze(1).expand(2, N_DOCS, 5))
    per_token = rag_token.per_token(tokens, doc_logprobs(scores))
    gathered = theirs.gather(2, target.clamp(min=0).unsqueeze(2)).squeeze(2).masked_fill(target == -100, 0.0)
    torch.testing.assert_close(per_token, gathered, atol=1e-5, rtol=1e-5)


@BOTH
def test_the_whole_model_agrees_without_its_logits(peers: dict[str, Any], kind: str) -> None:
    """Forward of the peer from token ids; ours from its decoder's last states and its LM head."""
    peer = peers[kind]
    _, scores, labels = random_inputs([6, 3])
    context = torch.randint(3, VOCAB, (2 * N_DOCS, 9), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        output = peer(
            context_input_ids=context, context_attention_mask=torch.ones_like(context), doc_scores=scores,
            labels=labels, n_docs=N_DOCS,
        )  # fmt: skip
        generator = peer.rag.generator
        repeated = labels.repeat_interleave(N_DOCS, 0)
        hidden = generator.model(input_ids=context, decoder_input_ids=repeated).last_hidden_state
        target = shifted(labels).repeat_interleave(N_DOCS, 0)
        bias = generator.final_logits_bias.squeeze(0)
        flat = linear_token_logprobs(
            hidden.flatten(0, 1), generator.lm_head.weight, bias, target.flatten(), block_size=7
        )
    tokens = flat.view(2, N_DOCS, -1)
    torch.testing.assert_close(OURS[kind](tokens, doc_logprobs(scores)), output.loss, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_rag_token_smoothing_agrees(peers: dict[str, Any], seed: int) -> None:
    logits, scores, labels = random_inputs([7, 4, 2], seed)
    theirs = peers["rag_token"].get_nll(logits, scores, labels, epsilon=0.1, n_docs=N_DOCS)
    unfolded = logits.view(3, N_DOCS, 7, VOCAB)
    value = label_smoothing.rag_token_nll(unfolded, shifted(labels), doc_logprobs(scores), epsilon=0.1)
    torch.testing.assert_close(value, theirs, atol=1e-5, rtol=1e-5)


def test_rag_token_agrees_on_one_token_too(peers: dict[str, Any]) -> None:
    logits, scores, labels = random_inputs([2, 2])
    theirs = peers["rag_token"].get_nll(logits, scores, labels, n_docs=N_DOCS)
    torch.testing.assert_close(ours("rag_token", logits, scores, shifted(labels)), theirs, atol=1e-5, rtol=1e-5)


# ------------------------------------------------------------------------------- both values where the peer is not


@pytest.mark.parametrize("pads", [0, 1, 3])
def test_the_peer_loses_the_prior_of_one_token_targets(peers: dict[str, Any], pads: int) -> None:
    """It adds log p(z|x) at the second target position; where that is padding, the mask wipes the prior out."""
    logits = torch.randn(N_DOCS, 2 + pads, VOCAB, generator=torch.Generator().manual_seed(0)) * 4
    labels = torch.tensor([[5, 7] + [PAD] * pads])
    scores = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
    likelihood = logits.log_softmax(2)[:, 0, 7].exp()

    theirs = peers["rag_sequence"].get_nll(logits, scores, labels, n_docs=N_DOCS)
    assert theirs.item() == pytest.approx(-math.log(likelihood.sum()), abs=1e-5)  # a sum over z without p(z|x)
    assert torch.autograd.grad(theirs.sum(), scores)[0].abs().max() < 1e-6  # nothing for the retriever to learn

    value = ours("rag_sequence", logits, scores, shifted(labels))
    prior = scores.detach()[0].softmax(0)
    assert value.item() == pytest.approx(-math.log((prior * likelihood).sum()), abs=1e-5)
    assert torch.autograd.grad(value.sum(), scores)[0].abs().max() > 1e-3
    # With one target token the two models are equal (section 2.1); the peer's own RAG-Token agrees with us.
    token = peers["rag_token"].get_nll(logits, scores, labels, n_docs=N_DOCS)
    assert value.item() == pytest.approx(token.item(), abs=1e-5)


def test_the_peer_is_too_low_by_log_k_for_equal_passages(peers: dict[str, Any]) -> None:
    logits = torch.randn(1, 2, VOCAB, generator=torch.Generator().manual_seed(0)).repeat(N_DOCS, 1, 1)
    labels, scores = torch.tensor([[5, 7]]), torch.zeros(1, N_DOCS)
    theirs = peers["rag_sequence"].get_nll(logits, scores, labels, n_docs=N_DOCS)
    value = ours("rag_sequence", logits, scores, shifted(labels))
    assert value.item() - theirs.item() == pytest.approx(math.log(N_DOCS), abs=1e-5)


def test_the_peer_gives_an_empty_target_a_probability_above_one(peers: dict[str, Any]) -> None:
    logits, labels, scores = torch.zeros(N_DOCS, 1, VOCAB), torch.tensor([[BOS]]), torch.tensor([[2.0, 0.0, -1.0]])
    theirs = peers["rag_sequence"].get_nll(logits, scores, labels, n_docs=N_DOCS)
    assert theirs.item() == pytest.approx(-math.log(N_DOCS), abs=1e-6)
    assert ours("rag_sequence", logits, scores, shifted(labels)).item() == pytest.approx(0, abs=1e-6)


def test_the_peer_smooths_rag_sequence_with_the_prior_counted_v_times(peers: dict[str, Any]) -> None:
    """Uniform outputs over V=40 and three tokens cost 3 ln 40 = 11.067, smoothed or not."""
    logits, scores = torch.zeros(N_DOCS, 4, VOCAB), torch.zeros(1, N_DOCS)
    labels = torch.tensor([[BOS, 5, 6, EOS]])
    theirs = [
        peers["rag_sequence"].get_nll(logits, scores, labels, epsilon=e, n_docs=N_DOCS).item() for e in (0.0, 0.1)
    ]
    assert theirs == pytest.approx([11.067, 11.174], abs=1e-3)
    unfolded = logits.view(1, N_DOCS, 4, VOCAB)
    for epsilon in (0.0, 0.1):
        value = label_smoothing.rag_sequence_nll(unfolded, shifted(labels), doc_logprobs(scores), epsilon=epsilon)
        assert value.item() == pytest.approx(3 * math.log(VOCAB), abs=1e-5)


@BOTH
def test_the_peer_rounds_bfloat16_logits_again(peers: dict[str, Any], kind: str) -> None:
    """From the same bfloat16 logits: ours equals float64; its softmax, prior and sums are bfloat16."""
    logits, scores, labels = random_inputs([12, 12], dtype=torch.bfloat16)
    exact = ours(kind, logits.double(), scores.double(), shifted(labels))
    theirs = peers[kind].get_nll(logits, scores, labels, n_docs=N_DOCS)
    assert theirs.dtype == torch.bfloat16 and (theirs.double() - exact).abs().max() > 1e-2
    torch.testing.assert_close(ours(kind, logits, scores, shifted(labels)).double(), exact, atol=1e-4, rtol=1e-6)


@BOTH
def test_the_peer_cannot_read_labels_of_minus_100(peers: dict[str, Any], kind: str) -> None:
    logits, scores, labels = random_inputs([6, 4])
    with pytest.raises((IndexError, RuntimeError), match=r"index -100 is out of bounds"):
        peers[kind].get_nll(logits, scores, labels.masked_fill(labels == PAD, -100), n_docs=N_DOCS)
    assert ours(kind, logits, scores, shifted(labels)).isfinite().all()


@BOTH
def test_the_peer_never_scores_eos_where_pad_is_eos(peers: dict[str, Any], kind: str) -> None:
    """It masks by the pad id. We mask by -100, so a generator whose pad is its EOS still learns to stop."""
    logits, scores, labels = random_inputs([5])
    labels[labels == EOS] = PAD  # such a generator: the last label is both
    theirs = peers[kind].get_nll(logits, scores, labels, n_docs=N_DOCS)
    target = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)
    without_eos = target.masked_fill(target == PAD, -100)
    torch.testing.assert_close(theirs, ours(kind, logits, scores, without_eos), atol=1e-5, rtol=1e-5)
    assert (ours(kind, logits, scores, target) - theirs).item() > 0.1


@BOTH
def test_the_peer_never_scores_the_first_label(peers: dict[str, Any], kind: str) -> None:
    """Its labels are decoder inputs. A label list without BOS, [yes, EOS], loses `yes`; ours scores both tokens."""
    logits, scores, _ = random_inputs([2])
    first, second = (
        peers[kind].get_nll(logits, scores, torch.tensor([[word, EOS]]), n_docs=N_DOCS).item() for word in (5, 6)
    )
    assert first == second
    values = [ours(kind, logits, scores, torch.tensor([[word, EOS]])).item() for word in (5, 6)]
    assert abs(values[0] - values[1]) > 0.1
