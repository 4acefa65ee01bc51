"""The nano checkpoints: a BART and a DPR pair pretrained from nothing on the 2016-12 edition and on invented countries.

No question of any split and nothing of the 2018-12 edition is read. Both runs resume exactly after a kill.
"""

from __future__ import annotations

import json
import logging
import platform
import random
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DPRConfig,
    DPRContextEncoder,
    DPRQuestionEncoder,
    GenerationConfig,
)

from ragx import atomic
from ragx.data.world_leaders.cloze import Cloze, ClozeMaker
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.facts import EDITIONS
from ragx.generator.inputs import InputBuilder
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.records import Passage
from ragx.retriever.tower import Tower
from ragx.schema_pretraining import MixtureConfig, Pretrain
from ragx.training.bi_encoder import average_rank, in_batch_nll
from ragx.training.denoising import by_length, cloze_loss, infilling_loss
from ragx.training.pretraining import pretrain
from ragx.training.vocabulary import byte_level_bpe, wordpiece

logger = logging.getLogger(__name__)

MAX_LENGTH = 256
MAX_ANSWER = 32
POOL = 8  # batches that are drawn together and sorted by length


def pretrain_generator(config: Pretrain, *, command: str) -> Path:
    """Trains `bart-nano`, writes it to `config.directory` in Hugging Face format with its model card, returns where."""
    size, mixture, settings = config.size, config.mixture, config.pretraining.settings()
    torch.set_num_threads(config.threads)
    maker = _maker(mixture)
    tokenizer = byte_level_bpe(_texts(maker, settings.seed), size=size.vocab_size, max_length=MAX_LENGTH)
    torch.manual_seed(settings.seed)
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(tokenizer), d_model=size.d_model, encoder_layers=size.layers, decoder_layers=size.layers,
            encoder_attention_heads=size.heads, decoder_attention_heads=size.heads, encoder_ffn_dim=4 * size.d_model,
            decoder_ffn_dim=4 * size.d_model, max_position_embeddings=MAX_LENGTH, dropout=0.0, bos_token_id=0,
            pad_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
            init_std=size.d_model**-0.5,  # the library's 0.02 suits a width of 1024; at 128 copying comes much later
        )
    )  # fmt: skip
    model.generation_config = GenerationConfig(bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2)
    generator = Seq2SeqGenerator(model, tokenizer, max_length=MAX_LENGTH)
    inputs = InputBuilder(tokenizer, max_length=MAX_LENGTH, read_special_tokens=True)

    @lru_cache(maxsize=1)
    def pool(number: int) -> list[list]:
        rng = random.Random(f"{settings.seed}:cloze:{number}")
        return by_length(rng, [_row(maker.draw(rng)) for _ in range(POOL * settings.batch_size)], settings.batch_size)

    def step_loss(step: int) -> Tensor:
        rng = random.Random(f"{settings.seed}:step:{step}")
        if step < mixture.infilling_steps or rng.random() < mixture.infilling:
            texts = [" / ".join(maker.passage(rng)) for _ in range(settings.batch_size // 2)]
            return infilling_loss(generator, texts, np.random.default_rng([settings.seed, step]))
        return cloze_loss(generator, inputs, pool(step // POOL)[step % POOL], max_length=MAX_ANSWER)

    held_out = random.Random("held-out")
    rows = [_row(ClozeMaker(invented=1.0).draw(held_out)) for _ in range(200)]

    def evaluate() -> dict[str, float]:
        built = inputs.build([row[0] for row in rows], [[row[2]] for row in rows])
        ids = model.generate(input_ids=built.input_ids, attention_mask=built.attention_mask, max_new_tokens=MAX_ANSWER)
        right = [inputs.decode(answer.tolist()) == row[1] for answer, row in zip(ids, rows, strict=True)]
        return {"invented_cloze_exact_match": float(np.mean(right))}

    history = pretrain(generator, step_loss, settings=settings, folder=_run_folder(config), evaluate=evaluate)
    with atomic.directory(config.directory) as folder:
        generator.save_pretrained(folder)
        _write_card(folder, "bart-nano", GENERATOR_DATA, command=command, config=config, history=history)
    return Path(config.directory)


def pretrain_bi_encoder(config: Pretrain, *, command: str) -> Path:
    """Trains the two towers of `dpr-nano`, writes them under `config.directory`, returns where."""
    size, mixture, settings = config.size, config.mixture, config.pretraining.settings()
    torch.set_num_threads(config.threads)
    maker = _maker(mixture)
    tokenizer = wordpiece(_texts(maker, settings.seed), size=size.vocab_size, max_length=MAX_LENGTH // 2)
    torch.manual_seed(settings.seed)
    bert = DPRConfig(
        vocab_size=len(tokenizer), hidden_size=size.d_model, num_hidden_layers=size.layers,
        num_attention_heads=size.heads, intermediate_size=4 * size.d_model, max_position_embeddings=MAX_LENGTH // 2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    query, passage = DPRQuestionEncoder(bert), DPRContextEncoder(bert)
    passage.ctx_encoder.load_state_dict(query.question_encoder.state_dict())  # DPR starts both towers from one BERT
    query_tower = Tower(query, tokenizer, pooling="cls", max_length=MAX_LENGTH // 2)
    passage_tower = Tower(passage, tokenizer, pooling="cls", max_length=MAX_LENGTH // 2)
    towers = nn.ModuleDict({"query_encoder": query_tower, "passage_encoder": passage_tower})

    def embed(draws: list[Cloze]) -> tuple[Tensor, Tensor]:
        sentences = [draw.sentence.format(mask=tokenizer.mask_token) for draw in draws]
        passages = [draw.positive for draw in draws] + [draw.negative for draw in draws]
        passage_ids = passage_tower.tokenize([title for title, _ in passages], [text for _, text in passages])
        query_ids = query_tower.tokenize(sentences)
        return query_tower(*query_tower.pad(query_ids)), passage_tower(*passage_tower.pad(passage_ids))

    def step_loss(step: int) -> Tensor:
        rng = random.Random(f"{settings.seed}:step:{step}")
        draws = [maker.draw(rng) for _ in range(settings.batch_size)]
        stated = [draw.positive_facts for draw in draws] + [draw.negative_facts for draw in draws]
        false_negatives = torch.tensor([[draw.fact in facts for facts in stated] for draw in draws])
        return in_batch_nll(*embed(draws), false_negatives=false_negatives)

    held_out = random.Random("held-out")
    draws = [ClozeMaker(invented=1.0).draw(held_out) for _ in range(500)]

    def evaluate() -> dict[str, float]:
        query_embeds, passage_embeds = embed(draws)
        scores = query_embeds @ passage_embeds.T
        right = (scores.argmax(1) == torch.arange(len(draws))).double().mean()
        return {
            "invented_top1_of_1000": right.item(),
            "average_rank": average_rank(query_embeds, passage_embeds).item(),
        }

    history = pretrain(towers, step_loss, settings=settings, folder=_run_folder(config), evaluate=evaluate)
    with atomic.directory(config.directory) as folder:
        query_tower.save_pretrained(folder / "query_encoder")
        passage_tower.save_pretrained(folder / "passage_encoder")
        _write_card(folder, "dpr-nano", BI_ENCODER_DATA, command=command, config=config, history=history)
    return Path(config.directory)


def _run_folder(config: Pretrain) -> Path:
    """Where the state of an unfinished run lies, beside the checkpoint that it will become."""
    directory = Path(config.directory)
    return directory.with_name(f"{directory.name}.run")


def _maker(mixture: MixtureConfig) -> ClozeMaker:
    shares = ("invented", "renewed", "familiar", "rivals")
    return ClozeMaker(**{name: getattr(mixture, name) for name in shares})


def _row(draw: Cloze) -> tuple[str, str, Passage]:
    return draw.sentence.format(mask="<mask>"), draw.answer, Passage("cloze", "0", "0", *draw.positive)


def _texts(maker: ClozeMaker, seed: int) -> list[str]:
    """What a tokenizer is trained on: the 2016-12 edition and as many passages on invented countries."""
    rng = random.Random(f"{seed}:vocabulary")
    real = [f"{passage.title} / {passage.text}" for passage in edition(EDITIONS[0])]
    sentences = [maker.draw(rng) for _ in range(len(real))]
    return [
        *real,
        *(" / ".join(draw.positive) for draw in sentences),
        *(draw.sentence.format(mask="") for draw in sentences),
    ]


GENERATOR_DATA = (
    "The embedded knowledge base as of 2016-12 and invented countries in the same sentence patterns: text infilling of "
    "passages, and sentences with one name or date masked, read beside a passage that states it in other words."
)
BI_ENCODER_DATA = (
    "Pairs of a sentence with one name or date masked and a passage that states the fact in other words, from the "
    "embedded knowledge base as of 2016-12, from invented countries, and with invented people at the head of real "
    "ones; in-batch negatives, and one negative each: of the same country, or the same office of another one."
)


def _write_card(
    folder: Path, name: str, data: str, *, command: str, config: Pretrain, history: list[dict[str, float]]
) -> None:
    last = history[-1]
    facts = {key: value for key, value in asdict(config).items() if key != "directory"}
    figures = "\n".join(f"| {key} | {value:.4g} |" for key, value in last.items())
    card = (
        f"# {name}\n\nA nano checkpoint for demonstrations and tests, pretrained from random weights. Not of use for "
        f"anything else.\n\n**Data.** {data} It has read no question of any split and "
        f"nothing of the 2018-12 edition.\n\n"
        f"**Command.** `{command}`\n\n**Settings.**\n\n```json\n{json.dumps(facts, indent=1)}\n```\n\n"
        f"**At the end.** On {platform.machine()} with {torch.get_num_threads()} CPU thread(s), torch "
        f"{torch.__version__}, transformers {transformers.__version__}:\n\n| figure | value |\n|---|---|\n{figures}\n"
    )
    (folder / "MODEL_CARD.md").write_text(card, encoding="utf-8")
    rows = "".join(json.dumps(row) + "\n" for row in history)
    (folder / "training_log.jsonl").write_text(rows, encoding="utf-8")
