"""The audit of whole files: figures, gates, bad input, comparisons, and the same bytes however it is run."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragx.citations.trace_file import write_traces
from ragx.citations.trace_records import Answer, Candidate, Citation, Claim, Dropped, Packed, Trace
from ragx.errors import ConfigError, DataError, RagxError
from ragx.experiments.audit import AuditResult, run_audit
from ragx.experiments.audit_benchmark import settings, write_benchmark
from ragx.experiments.audit_diff import compare, evidence_swap
from ragx.records import PassageKey
from ragx.schema_audit import AuditCitations

FILES = [
    "claims.jsonl",
    "citations.jsonl",
    "manifest.json",
    "report.html",
    "stages.jsonl",
    "summary.json",
    "summary.md",
]
Run = Callable[..., AuditResult]


def key(name: str) -> PassageKey:
    return PassageKey(*name.split("."))


def question(
    qid: str, cited: Sequence[str] = (), *, packed: Sequence[str] = (), text: str = "An answer.", **fields: Any
) -> Trace:
    """A question with one claim; without text it is abstained."""
    retrieved = fields.pop("retrieved", packed)
    answer = (
        Answer("answered", text) if text else Answer("abstained", "", fields.pop("reason", "insufficient_evidence"))
    )
    return Trace(
        qid=qid,
        question=f"What of {qid}?",
        answer=answer,
        retrieved=tuple(Candidate(i, key(name), 9.0 - i) for i, name in enumerate(retrieved, 1)),
        packed=tuple(Packed(i, i, key(name), prior=1 / len(packed)) for i, name in enumerate(packed, 1)),
        claims=(Claim(f"{qid}.c1", text, (0, len(text))),) if text else (),
        citations=tuple(Citation(f"{qid}.c1", key(name)) for name in cited),
        **fields,
    )


def gold(qid: str, labels: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    support = [
        {"claim_id": f"{qid}.c1", "key": name.split("."), "label": label} for name, label in (labels or {}).items()
    ]
    return {"schema": "ragx-gold-v1", "qid": qid, "support": support, **fields}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Audits traces against the passages named A.v1.a, ...; returns the result."""

    def run(
        traces: Sequence[Trace], *golds: dict[str, Any], corpus: Sequence[Any] = (), into: str = "out", **options: Any
    ) -> AuditResult:
        path, passages, labels = (tmp_path / f"{into}.{name}.jsonl" for name in ("traces", "corpus", "gold"))
        if not path.exists():
            write_traces(path, traces)
        names = corpus or ["A.v1.a"]
        rows = [
            {"source": s, "version": v, "chunk": c, "text": f"{s} {v} {c}"} for s, v, c in (n.split(".") for n in names)
        ]
        passages.write_text("".join(json.dumps(row) + "\n" for row in rows))
        labels.write_text("".join(json.dumps(row) + "\n" for row in golds))
        config = dataclasses.replace(
            settings(tmp_path), predictions=str(path), corpus=[str(passages)], gold=str(labels) if golds else None
        )
        for name, value in options.items():
            gate, _, figure = name.partition("__")
            setattr(getattr(config, gate) if figure else config, figure or gate, value)
        return run_audit(config, tmp_path / into)

    return run


def figures(result: AuditResult, section: str, name: str) -> tuple[Any, ...]:
    metric = result.summary["metrics"][section][name]
    return metric["value"], metric["n"], metric["n_null"]


A = "A.v1.a"


def test_d09_nothing_to_score_is_null(run: Run) -> None:
    """D09, F19, R13: three abstained answers have no coverage; one answered among four does, over one question."""
    silent = [question(f"q{i}", text="") for i in range(3)]
    golds = [gold(f"q{i}", answerable=False) for i in range(3)]
    result = run(silent, *golds)
    assert figures(result, "support", "coverage_any") == (None, 0, 3)
    assert result.summary["abstention"]["unanswerable_abstained"] == 3
    result = run([*silent, question("q9", [A], packed=[A])], *golds, gold("q9", {A: "full"}), into="four")
    assert figures(result, "support", "coverage_any") == (1.0, 1, 3)


def test_d29_what_nobody_labelled_is_counted_both_ways(run: Run) -> None:
    """D29: 6 full, 1 none, 3 unlabelled: 6/7 of those judged, between .6 and .9."""
    labels = ["full"] * 6 + ["none"] + [None] * 3
    traces = [question(f"q{i}", [A], packed=[A]) for i in range(10)]
    result = run(traces, *(gold(f"q{i}", {A: label} if label else None) for i, label in enumerate(labels)))
    values = [figures(result, "support", f"coverage_any{end}")[0] for end in ("", "_lower", "_upper")]
    assert values == pytest.approx([6 / 7, 0.6, 0.9], abs=1e-6)
    assert result.summary["counts"]["claim_status"]["not_judged"] == 3


def test_d07_d08_both_readings_stand_in_the_summary(run: Run) -> None:
    """D07: citing v2 where v1 is labelled covers nothing. D08, A9.1: mixed citations cover and are not strict."""
    known = gold("q", {A: "full"})
    alone = run([question("q", ["A.v2.a"], packed=[A])], known, into="alone")
    assert figures(alone, "support", "coverage_any") == (0.0, 1, 0)
    mixed = run([question("q", [A, "A.v2.a"], packed=[A])], known, into="mixed")
    assert figures(mixed, "support", "coverage_any") == (1.0, 1, 0)
    assert figures(mixed, "support", "strict_support_rate") == (0.0, 1, 0)
    printed = (mixed.directory / "summary.md").read_text()
    assert "| coverage_any | 1.000 |" in printed and "| strict_support_rate | 0.000 |" in printed


def test_d10_a_citation_said_three_times(run: Run) -> None:
    """D10: two of three are duplicates, and precision is 1 of 1."""
    result = run([question("q", [A, A, A], packed=[A])], gold("q", {A: "full"}))
    assert figures(result, "validity", "duplicate_rate")[0] == pytest.approx(2 / 3, abs=1e-6)
    assert figures(result, "precision", "alce_precision") == (1.0, 1, 0)


def three_sentences(*cited: Sequence[Citation], packed: Sequence[str]) -> Trace:
    """One answer of a sentence for each list of citations."""
    text = " ".join(f"Sentence {i}." for i, _ in enumerate(cited))
    claims = tuple(Claim(f"s{i}", f"Sentence {i}.", (12 * i, 12 * i + 11)) for i, _ in enumerate(cited))
    citations = tuple(c._replace(claim_id=f"s{i}") for i, row in enumerate(cited) for c in row)
    return dataclasses.replace(question("q", packed=packed, text=text), claims=claims, citations=citations)


def labelled(*rows: tuple[str, str, str], **fields: Any) -> dict[str, Any]:
    return gold("q", **fields) | {
        "support": [{"claim_id": claim, "key": name.split("."), "label": label} for claim, name, label in rows]
    }


def test_d14_figure_3_of_alce(run: Run) -> None:
    """D14: recall 2/3, precision 4/6; with [2] partial Liu's rule counts it in: 5/6."""
    names = [f"D{i}.v1.0" for i in range(1, 6)]
    cites = [[Citation("", key(names[i - 1])) for i in row] for row in ((1, 2), (3,), (2, 4, 5))]
    known = labelled(
        ("s0", names[0], "full"), ("s0", names[1], "full"), ("s1", names[2], "none"), ("s2", names[1], "partial"),
        groups={"s2": [[names[3].split("."), names[4].split(".")]]},
    )  # fmt: skip
    result = run([three_sentences(*cites, packed=names)], known, corpus=names)
    found = [figures(result, "precision", name)[0] for name in ("alce_recall", "alce_precision")]
    assert found == pytest.approx([2 / 3, 4 / 6], abs=1e-6)
    assert figures(result, "precision", "partial_aware_precision")[0] == pytest.approx(5 / 6, abs=1e-6)


def test_d16_a_number_out_of_range(run: Run) -> None:
    """D16: a [1], b [1][9] of five: recall 1/2, precision 1/3, one invalid; the other code says 1 of 1."""
    names = [f"D{i}.v1.0" for i in range(1, 6)]
    cites = [[Citation("", None, 1)], [Citation("", None, 1), Citation("", None, 9)]]
    known = labelled(("s0", names[0], "full"), ("s1", names[0], "full"))
    result = run([three_sentences(*cites, packed=names)], known, corpus=names)
    found = [figures(result, "precision", name)[0] for name in ("alce_recall", "alce_precision")]
    assert found == pytest.approx([1 / 2, 1 / 3], abs=1e-6)
    assert result.summary["counts"]["citation_status"] == {"full": 2, "out_of_range": 1}


def test_d18_the_right_page_and_the_wrong_chunk(run: Run) -> None:
    """D18: R-precision is 1 of pages and 0 of chunks; a right answer counts for KILT, and not with another page."""
    right, wrong, far = "Peru.2018.3", "Peru.2018.4", "Chile.2018.0"
    traces = [question(f"q{i}", [name], packed=[name], text="Lima") for i, name in enumerate((wrong, far))]
    golds = [gold(f"q{i}", answers=["Lima"], groups=[[right.split(".")]]) for i in range(2)]
    names = [right, wrong, far]
    first = run(traces[:1], golds[0], corpus=names, into="first")
    assert figures(first, "provenance", "rprec_page") == (1.0, 1, 0)
    assert figures(first, "provenance", "rprec_chunk") == (0.0, 1, 0)
    both = run(traces, *golds, corpus=names, into="both")
    assert figures(both, "answer", "exact_match") == (1.0, 2, 0)
    assert figures(both, "provenance", "kilt_exact_match") == (0.5, 2, 0)


def test_d25_no_file_says_what_a_reader_may_not_see(run: Run, tmp_path: Path) -> None:
    """D25: one citation is forbidden and counted; its source, title and words are in no file, its key is a digest."""
    secret = {
        "source": "payroll", "version": "v7", "chunk": "c9", "title": "Board salaries", "acl": ["hr"],
        "text": "The board is paid 900.", "uri": "intranet://pay",
    }  # fmt: skip
    (tmp_path / "secret.jsonl").write_text(json.dumps(secret) + "\n")
    cited = (Citation("q.c1", key("payroll.v7.c9"), quote="paid 900"), Citation("q.c1", key(A)))
    asked = question("q", packed=["payroll.v7.c9", A], text="They are paid 900.", principal=("public",))
    known = labelled(("q.c1", "payroll.v7.c9", "full"), ("q.c1", A, "full"))
    asked = dataclasses.replace(asked, citations=cited)
    path = tmp_path / "open.traces.jsonl"
    write_traces(path, [asked])
    result = run([], known, into="open")
    assert result.summary["counts"]["citation_status"] == {"full": 1, "unknown_source": 1}  # without the secret file
    config = dataclasses.replace(settings(tmp_path), predictions=str(path), gold=str(tmp_path / "open.gold.jsonl"))
    config.corpus = [str(tmp_path / "secret.jsonl"), str(tmp_path / "open.corpus.jsonl")]
    result = run_audit(config, tmp_path / "closed")
    assert result.summary["counts"]["citation_status"] == {"forbidden": 1, "full": 1}
    assert figures(result, "support", "coverage_any") == (1.0, 1, 0)
    assert figures(result, "support", "strict_support_rate") == (0.0, 1, 0)
    assert sorted(p.name for p in result.directory.iterdir()) == sorted(FILES)
    for written in result.directory.iterdir():
        text = written.read_text()
        assert not [word for word in ("payroll", "Board", "intranet", "paid 900", "board is") if word in text], written
    assert "restricted:" in (result.directory / "citations.jsonl").read_text()


def test_what_the_outputs_of_a_judge_mean_reaches_it(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`nli_labels` and the checkpoint are what the judge is built with, by the names of the config."""
    asked: dict[str, Any] = {}

    class Judge:
        id = "fake"

        def judge(self, claim: str, passages: Any) -> str:
            return "full"

    def build(name: str, **given: Any) -> Judge:
        asked.update(name=name, **given)
        return Judge()

    monkeypatch.setattr("ragx.experiments.audit.build_judge", build)
    labels = ["contradiction", "neutral", "entailment"]
    result = run([question("q", [A], packed=[A])], judge="nli", nli=str(tmp_path), nli_labels=labels)
    assert asked == {"name": "nli", "checkpoint": str(tmp_path), "labels": labels}
    assert figures(result, "support", "coverage_any") == (1.0, 1, 0)
    assert json.loads((result.directory / "manifest.json").read_text())["settings"]["nli_labels"] == labels


def test_e10_an_empty_answer_counts(run: Run) -> None:
    """E10: outputs "" and "Yes [1].", supported: recall .5 over two answers."""
    empty = dataclasses.replace(question("q1", text=""), answer=Answer(text=""), claims=(Claim("q1.c1", "", (0, 0)),))
    result = run([empty, question("q2", [A], packed=[A], text="Yes [1].")], gold("q1"), gold("q2", {A: "full"}))
    assert figures(result, "precision", "alce_recall") == (0.5, 2, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_gold_of_none_of_the_questions_is_refused(run: Run, tmp_path: Path, workers: int) -> None:
    """Of some of them it is not: what needs gold has no value for the others."""
    traces = [question(qid, [A], packed=[A]) for qid in ("q1", "q2")]
    message = "predictions must answer questions of gold, got 'q1' and 1 others, where gold has 'q7' and 1 others"
    for lenient in (False, True):
        with pytest.raises(RagxError, match=message):
            run(traces, gold("q7"), gold("q8"), workers=workers, lenient=lenient)
    assert not (tmp_path / "out").exists()
    assert run(traces, gold("q2"), gold("q3"), workers=workers).summary["n_error"] == 0


def test_e9_right_without_evidence(run: Run) -> None:
    """E9 (paper): the share of right answers among those whose passages do not hold one."""
    traces = [question(f"q{i}", packed=[A], text=text) for i, text in enumerate(("Lima", "v1", "Cuzco"), 1)]
    golds = [gold("q1", answers=["Lima"]), gold("q2", answers=["v1"]), gold("q3", answers=["Quito"])]
    assert figures(run(traces, *golds), "answer", "correct_without_evidence") == (0.5, 2, 1)


def test_reason_codes_are_scored_where_nothing_is_answered(run: Run) -> None:
    """R11, R25, DS3, F18, F24: abstained for this reason; refused and failed answers are neither."""
    traces = [
        question("q1", text="", reason="conflicting_evidence"),
        question("q2", text="", reason="unsupported_task"),
        dataclasses.replace(question("q3", text=""), answer=Answer("refused")),
        dataclasses.replace(question("q4", text=""), answer=Answer("error")),
    ]
    golds = [gold(f"q{i}", answerable=False, reason_code="conflicting_evidence") for i in range(1, 5)]
    result = run(traces, *golds)
    assert figures(result, "answer", "reason_accuracy") == (0.5, 2, 2)
    assert result.summary["abstention"]["unanswerable_abstained"] == 2
    assert result.summary["counts"]["answer_status"] == {"abstained": 2, "error": 1, "refused": 1}


def test_d33_an_index_of_another_date(run: Run) -> None:
    """D33, E11, F9: asked about 2018 and answered from the dump of 2016: every citation is stale."""
    before, after = "Peru.2016-12.0", "Peru.2018-12.0"
    traces = [
        question(f"{index[5:9]}-{date[:4]}", [index], packed=[index], as_of=date)
        for index in (before, after)
        for date in ("2016-12", "2018-12")
    ]
    result = run(traces, corpus=[before, after])
    rows = [json.loads(line) for line in (result.directory / "citations.jsonl").read_text().splitlines()]
    assert {row["qid"]: row["status"] for row in rows} == {
        "2016-2016": "not_judged", "2016-2018": "stale", "2018-2016": "not_judged", "2018-2018": "not_judged",
    }  # fmt: skip


def practice_set() -> tuple[list[Trace], list[dict[str, Any]], list[str]]:
    """E1: three questions each of one source, several sources, no answer, and a conflict of versions."""
    names = [f"S{i}.v1.0" for i in range(3)] + [f"M{i}{half}.v1.0" for i in range(3) for half in "ab"]
    names += [f"K{i}.{version}.0" for i in range(3) for version in ("v1", "v2")]
    traces, golds = [], []
    for i in range(3):
        one, (first, second) = f"S{i}.v1.0", (f"M{i}a.v1.0", f"M{i}b.v1.0")
        traces.append(question(f"single{i}", [one], packed=[one], category="single"))
        golds.append(gold(f"single{i}", groups=[[one.split(".")]]))
        fits = [first] if i == 0 else [first, second]
        dropped = (Dropped(key(second), "pack", "over_budget", 3),) if i == 0 else ()
        traces.append(
            question(f"multi{i}", fits, packed=fits, retrieved=[first, second], dropped=dropped, category="multi")
        )
        golds.append(gold(f"multi{i}", groups=[[first.split("."), second.split(".")]]))
        traces.append(question(f"none{i}", text="", packed=[one], category="none"))
        golds.append(gold(f"none{i}", answerable=False, reason_code="insufficient_evidence"))
        traces.append(question(f"version{i}", [f"K{i}.v2.0"], packed=[f"K{i}.v2.0"], category="version"))
        golds.append(gold(f"version{i}", groups=[[[f"K{i}", "v2", "0"]]]))
    return traces, golds, names


def test_d38_practice_set(run: Run) -> None:
    """D38, E1: the A/B question is the only packing miss; questions without an answer are in no coverage."""
    traces, golds, names = practice_set()
    result = run(traces, *golds, corpus=names)
    assert result.summary["counts"]["stage"] == {"ok": 8, "packing_miss": 1}
    assert result.summary["counts"]["drop_reason"] == {"over_budget": 1}
    assert figures(result, "support", "supported_rate") == pytest.approx((8 / 9, 9, 3), abs=1e-6)
    assert figures(result, "support", "group_support_rate") == pytest.approx((8 / 9, 9, 3), abs=1e-6)
    assert result.summary["abstention"]["unanswerable_abstained"] == 3
    assert list(result.summary["by"]["category"]) == ["multi", "none", "single", "version"]


def test_d38_one_version_changed_is_one_row_changed(run: Run) -> None:
    """D38, F14: v2 becomes v9, which nobody has; no other row moves."""
    traces, golds, names = practice_set()
    before = run(traces, *golds, corpus=names, into="before")
    other = (Citation("version1.c1", key("K1.v9.0")),)
    changed = [dataclasses.replace(t, citations=other) if t.qid == "version1" else t for t in traces]
    after = run(changed, *golds, corpus=names, into="after")
    found = compare(before.directory, after.directory)
    assert [(row["qid"], row["after"]["status"]) for row in found["changed"]] == [("version1", "unknown_version")]
    assert found["moves"] == {"full -> unknown_version": 1}
    assert found["figures"]["resolvable_rate"] == [1.0, pytest.approx(1 - 1 / 11, abs=1e-6)]
    assert found["paired"]["coverage_any"]["n"] == 9
    assert json.loads((after.directory / "diff.json").read_text())["unchanged"] == 10


def test_d32_the_same_number_without_its_source(run: Run, tmp_path: Path) -> None:
    """D32, E2, F7: the same answer from a passage without it is suspect; saying that material is missing is not."""
    write_traces(tmp_path / "first.jsonl", [question(f"q{i}", packed=[A], text="It is 750.") for i in range(3)])
    second = [question("q0", text="it is 750"), question("q1", text=""), question("q2", text="It is 600.")]
    write_traces(tmp_path / "second.jsonl", second)
    found = evidence_swap(tmp_path / "first.jsonl", tmp_path / "second.jsonl")
    assert found == {"suspects": ["q0"], "passed": 2, "n": 3, "rate": pytest.approx(1 / 3)}


def test_d39_strict(run: Run) -> None:
    """D39: labels by the system itself fail the run under `strict`, and are found either way."""
    asked = [question("q", [A], packed=[A], model={"id": "m"})]
    known = gold("q", {A: "full"}, labeller="m")
    assert run(asked, known).passed
    result = run(asked, known, strict=True, into="strict")
    assert not result.passed and result.summary["counts"]["finding"] == {"independence": 1}


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ({"fail_under__coverage_any": 0.5}, True),
        ({"fail_under__coverage_any": 0.51}, False),
        ({"fail_under__fever_score": 0.0}, False),
        ({"max__unsupported": 1}, True),
        ({"max__unsupported": 0}, False),
        ({"max__forbidden": 0, "max__findings": 0, "max__n_error": 0}, True),
    ],
)
def test_gates(run: Run, options: dict[str, float], passed: bool) -> None:
    """C6: a figure without a value passes nothing."""
    traces = [question("q1", [A], packed=[A]), question("q2", [A], packed=[A])]
    assert run(traces, gold("q1", {A: "full"}), gold("q2", {A: "none"}), **options).passed is passed


BAD = [
    ('{"schema": "ragx-trace-v1", "qid"', "traces.jsonl:2: line must be one JSON object"),
    ("same", "traces.jsonl:2: qid: must be unique, got 'q1' again"),
    ("nan", r"traces.jsonl:2: S\[0\].prior: must be a finite number"),
    ("sum", "traces.jsonl:2: S.prior: must sum to 1"),
    ("span", r"traces.jsonl:2: claims\[0\].span: must lie within"),
]


def broken(kind: str) -> str:
    row = json.loads(json.dumps(question("q1" if kind == "same" else "q2", [A], packed=[A]).to_json()))
    if kind in ("nan", "sum"):
        row["S"][0]["prior"] = float("nan") if kind == "nan" else 0.8
    if kind == "span":
        row["claims"][0]["span"] = [0, 99]
    return kind if kind.startswith("{") else json.dumps(row)


@pytest.mark.parametrize(("kind", "message"), BAD, ids=["torn", "twice", "nan", "sum", "span"])
@pytest.mark.parametrize("workers", [1, 2])
def test_d40_bad_lines(run: Run, tmp_path: Path, kind: str, message: str, workers: int) -> None:
    """D40, C7: named by file, line and field; `lenient` counts it and leaves every other row as it was."""
    good = question("q1", [A], packed=[A])
    clean = run([good], into="clean")
    path = tmp_path / "out.traces.jsonl"
    write_traces(path, [good])
    path.write_text(path.read_text() + broken(kind) + "\n")
    with pytest.raises(DataError, match=message):
        run([], workers=workers)
    assert not (tmp_path / "out").exists()
    result = run([], lenient=True, workers=workers)
    assert result.summary["n_error"] == 1
    (error,) = map(json.loads, (result.directory / "errors.jsonl").read_text().splitlines())
    assert error["line"] == 2
    for name in ("claims.jsonl", "citations.jsonl", "stages.jsonl"):
        assert (result.directory / name).read_bytes() == (clean.directory / name).read_bytes()


def test_an_empty_file_is_all_null(run: Run) -> None:
    """C7: with a warning; refused where questions are required."""
    result = run([])
    values = [m["value"] for section in result.summary["metrics"].values() for m in section.values()]
    assert values and set(values) == {None} and "no question" in result.summary["warnings"][0]
    with pytest.raises(DataError, match="file must hold at least one question, got none"):
        run([], require_nonempty=True, into="required")


@pytest.mark.parametrize("corpus", ["world_leaders:1999", "world_leaders:"])
def test_a_corpus_that_does_not_exist(tmp_path: Path, corpus: str) -> None:
    write_traces(tmp_path / "traces.jsonl", [])
    config = dataclasses.replace(settings(tmp_path), corpus=[corpus], gold=None)
    with pytest.raises(ConfigError, match="corpus must be a file or world_leaders:"):
        run_audit(config, tmp_path / "out")


def shuffled(path: Path, seed: int) -> None:
    lines = path.read_text().splitlines()
    random.Random(seed).shuffle(lines)
    path.write_text("".join(line + "\n" for line in lines))


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A synthetic run of 210 answers, more than one chunk, and the bytes of its audit."""
    folder = tmp_path_factory.mktemp("bench")
    write_benchmark(folder, 210)
    result = run_audit(settings(folder), folder / "first")
    return folder, {path.name: path.read_bytes() for path in result.directory.iterdir()}


def test_the_folder_of_an_audit(benchmark: tuple[Path, dict[str, bytes]]) -> None:
    """C6, DS11: three files of rows, two summaries, the page, and what it was made from."""
    _, written = benchmark
    assert sorted(written) == sorted(FILES)
    manifest = json.loads(written["manifest.json"])
    assert manifest["inputs"]["predictions"]["lines"] == 210 and manifest["judge"] == "frozen"
    row = json.loads(written["stages.jsonl"].splitlines()[0])
    assert {"model", "decode", "losses", "retrieved", "packed", "cited"} <= row.keys()
    assert [json.loads(line)["qid"] for line in written["stages.jsonl"].splitlines()][:3] == ["q0", "q1", "q10"]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_bytes_for_any_order_and_number_of_workers(
    benchmark: tuple[Path, dict[str, bytes]], tmp_path: Path, workers: int
) -> None:
    folder, written = benchmark
    for name in ("traces", "corpus", "gold"):
        (tmp_path / f"{name}.jsonl").write_bytes((folder / f"{name}.jsonl").read_bytes())
        shuffled(tmp_path / f"{name}.jsonl", workers)
    result = run_audit(settings(tmp_path, workers=workers), tmp_path / "out")
    for name in FILES:
        assert (result.directory / name).read_bytes() == written[name], name


def test_every_figure_of_the_benchmark_adds_up(benchmark: tuple[Path, dict[str, bytes]]) -> None:
    _, written = benchmark
    claims = [json.loads(line) for line in written["claims.jsonl"].splitlines()]
    summary = json.loads(written["summary.json"])
    assert len(claims) == summary["n_claims"] == summary["n_citations"] == 1050
    covered = sum(claim["covered"] for claim in claims) / len(claims)
    assert summary["metrics"]["support"]["coverage_any"]["value"] == pytest.approx(covered, abs=1e-6)
    low, high = summary["metrics"]["support"]["coverage_any"]["ci95"]
    assert low < covered < high < low + 0.2


def test_a_failed_audit_leaves_the_old_folder(benchmark: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    folder, _ = benchmark
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "summary.json").write_text("old")
    config: AuditCitations = dataclasses.replace(settings(folder), predictions=str(folder / "gold.jsonl"))
    with pytest.raises(DataError, match="gold.jsonl:1: schema: must be 'ragx-trace-v1'"):
        run_audit(config, tmp_path / "old")
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["summary.json"]


def test_no_torch_and_no_hydra_on_the_way() -> None:
    """The audit is set arithmetic over files."""
    code = "import sys; import ragx.experiments.audit; print({'torch', 'transformers', 'hydra'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_wrong_digest_in_the_corpus_is_found(tmp_path: Path) -> None:
    """D23: a wrong digest is for the audit to find, not an error of reading."""
    write_benchmark(tmp_path, 3)
    path = tmp_path / "corpus.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**row, "sha256": "00"}) + "\n" for row in rows))
    result = run_audit(settings(tmp_path), tmp_path / "out")
    assert result.summary["counts"]["citation_status"] == {"hash_mismatch": 15}
