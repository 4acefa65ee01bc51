"""What the checkpoints are pretrained on: who is invented, where, and under which name."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys

import pytest

from ragx.data.world_leaders.cloze import Cloze, ClozeMaker
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.facts import EDITIONS, offices, spells
from ragx.data.world_leaders.names import NameMaker

COUNTRIES = {*spells(), *(office.country for office in offices())}


def drawn(maker: ClozeMaker, n: int, seed: int = 0) -> list[Cloze]:
    rng = random.Random(seed)
    return [maker.draw(rng) for _ in range(n)]


def country(draw: Cloze) -> str:
    return draw.fact.split(":")[1]


def test_renewed_pairs_put_people_nobody_knows_at_the_head_of_real_countries() -> None:
    known = {passage.text for passage in edition(EDITIONS[0])}
    draws = drawn(ClozeMaker(invented=1.0, renewed=1.0, familiar=0.5), 300)
    assert {country(draw) for draw in draws} <= COUNTRIES
    assert not {draw.positive[1] for draw in draws} & known
    assert len({country(draw) for draw in draws}) > 100


def test_a_renewed_office_is_mostly_one_that_the_country_has() -> None:
    held = {(office.country, office.office) for office in offices()}
    draws = drawn(ClozeMaker(invented=1.0, offices=1.0, renewed=1.0), 300)
    of_real = [draw for draw in draws if any(country(draw) == name for name, _ in held)]
    right = [draw for draw in of_real if tuple(draw.fact.split(":")[1:3]) in held]
    assert len(right) > 0.4 * len(of_real)  # one of the two offices of a drawn country


def test_half_renewed_are_half_real() -> None:
    share = sum(country(draw) in COUNTRIES for draw in drawn(ClozeMaker(invented=1.0, renewed=0.5), 400)) / 400
    assert 0.42 < share < 0.58


def test_the_negative_of_a_pair_never_states_its_fact() -> None:
    for draw in drawn(ClozeMaker(invented=0.5, renewed=0.5, familiar=0.5, rivals=0.5), 600):
        assert draw.fact in draw.positive_facts
        alone = draw.negative == draw.positive  # the only passage of its country; the loss leaves it out
        assert (draw.fact in draw.negative_facts) == alone


def test_a_rival_says_the_same_of_another_country() -> None:
    draws = drawn(ClozeMaker(invented=0.5, renewed=0.5, offices=1.0, rivals=1.0), 300)
    for draw in (draw for draw in draws if draw.fact.startswith("office")):
        _, at_home, title = draw.fact.split(":")
        (_, abroad, same_title), _ = sorted(fact.split(":") for fact in draw.negative_facts)
        assert (same_title, abroad != at_home) == (title, True)
        assert abroad in COUNTRIES or at_home not in COUNTRIES  # an invented country can bear a real name, rarely


def test_the_rival_of_a_present_leader_is_the_government_of_another_country() -> None:
    draws = drawn(ClozeMaker(invented=0.0, offices=0.0, rivals=1.0), 600)
    of_leaders = [draw for draw in draws if draw.fact.startswith("leads")]
    assert of_leaders
    for draw in of_leaders:
        assert any(fact.startswith("leads:") and fact != draw.fact for fact in draw.negative_facts)


def digest(**shares: float) -> str:
    maker, rng = ClozeMaker(**shares), random.Random(0)
    draws = [(d.sentence, d.answer, d.positive, d.negative) for d in (maker.draw(rng) for _ in range(200))]
    rows = [*draws, *(maker.passage(rng) for _ in range(200))]
    return hashlib.sha256("\n".join(map(str, rows)).encode("utf-8")).hexdigest()[:16]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"invented": 0.6}, "9a1eb59412c5afee"),
        ({"invented": 0.5, "renewed": 0.5, "familiar": 0.5, "rivals": 0.7}, "92ad708a0a9230e7"),
    ],
)
def test_the_draws_are_those_the_checkpoints_were_made_with(shares: dict[str, float], expected: str) -> None:
    code = f"from tests.data.world_leaders.test_cloze import digest; print(digest(**{shares}))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert outputs == {expected}


def test_familiar_names_are_made_of_words_of_real_ones() -> None:
    rng, real, invented = random.Random(0), NameMaker(familiar=1.0), NameMaker()
    words = {word for _ in range(200) for word in real.leader(rng).split()}
    assert words <= set(real.known)
    strange = {word for _ in range(200) for word in invented.leader(rng).split()}
    assert len(strange & set(real.known)) < 0.3 * len(strange)
