"""How a row of each published question set says what is asked and what is right.

Every function takes a row and returns an `Example` as that data set means it: a claim with its label, a clue with its
answer. `None` means that the row is sound and not part of the task (MS MARCO without a written answer). What a task
does with it, `ragx.data.tasks` says. One decision: the format is known from the fields of the first row, and a file
whose rows fit none is refused with the list of what could be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ragx.data.rows import Element
from ragx.jsonl import Row
from ragx.records import Example, PassageKey

DEFAULT_CHUNK = "0"  # of a passage file whose ids name whole passages, as `ragx.data.corpus` reads it
Read = Callable[[Row, str], Example | None]


@dataclass(frozen=True, slots=True)
class Format:
    """One layout of rows.

    Attributes:
        name: for messages.
        fields: a row of this layout has all of them.
        read: the example of a row; its second argument is the version of the passages that ids name.
    """

    name: str
    fields: frozenset[str]
    read: Read


def identity(row: Row, *names: str) -> str:
    """The first of the named fields that is given, a number as its digits; without one, that of the line or element."""
    for name in names:
        value = row.values.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if value is not None:
            return row.text(name, value)
    return str(row.place if isinstance(row, Element) else row.line)


def texts(row: Row, field: str, value: Any) -> tuple[str, ...]:
    """Accepted answers: a text or a list of texts, none blank, each once and in order."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (row.text(field, value),)
    found = [row.text(f"{field}[{i}]", answer) for i, answer in enumerate(row.items(field, value))]
    return tuple(dict.fromkeys(found))


def keys(row: Row, field: str, ids: Iterable[Any], version: str) -> tuple[PassageKey, ...]:
    """Gold passages by their id in the passage file."""
    named = (str(i) if isinstance(i, int) and not isinstance(i, bool) else row.text(field, i) for i in ids)
    return tuple(PassageKey(name, version, DEFAULT_CHUNK) for name in named)


def _plain(row: Row, version: str) -> Example:
    """NQ-open, WebQuestions and our own: `question` or `query`, `answer` or `answers`; gold as keys or passage ids."""
    field, query = _either(row, "query", "question")
    if query is None:
        row.fail("query", f"must be given, got the fields {sorted(row.values)}. Add `query` or `question`")
    answers_field, answers = _either(row, "answers", "answer")
    as_of = row.values.get("as_of")
    gold = tuple(row.key(f"gold[{i}]", key) for i, key in enumerate(row.items("gold", row.values.get("gold") or [])))
    one, several = row.values.get("positive_ctx_id"), row.values.get("positive_ctx_ids")
    ids = [one] if one is not None else row.items("positive_ctx_ids", several or [])
    return Example(
        id=identity(row, "id"),
        query=row.text(field, query),
        answers=texts(row, answers_field, answers),
        kind=row.string("kind", row.values.get("kind") or ""),
        gold=gold or keys(row, "positive_ctx_ids", ids, version),
        as_of=None if as_of is None else row.text("as_of", as_of),
        gold_titles=_titles(row),
        acl=None if row.values.get("acl") is None else texts(row, "acl", row.items("acl", row.values["acl"])),
    )


def _either(row: Row, name: str, other: str) -> tuple[str, Any]:
    """The field that is given, with its value; both, saying different things, is an error."""
    first, second = row.values.get(name), row.values.get(other)
    if first is not None and second is not None and first != second:
        row.fail(other, f"must equal `{name}` where both are given, got {second!r} beside {first!r}. Remove one")
    return (name, first) if first is not None or second is None else (other, second)


def _titles(row: Row) -> tuple[tuple[str, ...], ...]:
    sets = row.items("gold_titles", row.values.get("gold_titles") or [])
    return tuple(
        tuple(row.text(f"gold_titles[{i}][{j}]", title) for j, title in enumerate(row.items(f"gold_titles[{i}]", s)))
        for i, s in enumerate(sets)
    )


def _dpr(row: Row, version: str) -> Example:
    """DPR's retriever data: `positive_ctxs` with titles and, in most files, the ids of psgs_w100.tsv."""
    contexts = row.items("positive_ctxs", row.require("positive_ctxs"))
    ids, titles = [], []
    for i, context in enumerate(contexts):
        if not isinstance(context, dict):
            row.fail(f"positive_ctxs[{i}]", f"must be an object, got {context!r}. Mend this entry")
        ids += [context[name] for name in ("passage_id", "psg_id") if context.get(name) is not None][:1]
        titles += [(context["title"],)] if context.get("title") else []
    return Example(
        id=identity(row, "id", "question_id"),
        query=row.text("question", row.require("question")),
        answers=texts(row, "answers", row.values.get("answers")),
        gold=keys(row, "positive_ctxs", ids, version),
        gold_titles=tuple(dict.fromkeys(titles)),
    )


def _kilt(row: Row, version: str) -> Example:
    """KILT: every output is an answer, a set of pages that supports it, or both."""
    answers, titles = [], []
    for i, output in enumerate(row.items("output", row.values.get("output") or [])):
        place = f"output[{i}]"
        if not isinstance(output, dict):
            row.fail(place, f"must be an object, got {output!r}. Mend this entry")
        if output.get("answer"):
            answers.append(row.text(f"{place}.answer", output["answer"]))
        pages = row.items(f"{place}.provenance", output.get("provenance") or [])
        named = [page["title"] for page in pages if isinstance(page, dict) and page.get("title")]
        titles += [tuple(dict.fromkeys(named))] if named else []
    return Example(
        id=identity(row, "id"),
        query=row.text("input", row.require("input")),
        answers=tuple(dict.fromkeys(answers)),
        gold_titles=tuple(dict.fromkeys(titles)),
    )


def _trivia_qa(row: Row, version: str) -> Example:
    """TriviaQA, from the hub or its own files: the value first, then its aliases."""
    answer = row.values.get("answer", row.values.get("Answer"))
    if not isinstance(answer, dict):
        row.fail("answer", f"must be an object with value and aliases, got {answer!r}. Mend this row")
    value = answer.get("value", answer.get("Value"))
    aliases = answer.get("aliases", answer.get("Aliases")) or []
    field = "question" if "question" in row.values else "Question"
    return Example(
        id=identity(row, "question_id", "QuestionId"),
        query=row.text(field, row.require(field)),
        answers=texts(row, "answer", [*([value] if value else []), *row.items("aliases", aliases)]),
    )


def _aliases(row: Row, version: str) -> Example:
    """{qid, question, gold_answer, aliases}: samples of TriviaQA and PopQA."""
    aliases = row.items("aliases", row.require("aliases") or [])
    return Example(
        id=identity(row, "qid"),
        query=row.text("question", row.require("question")),
        answers=texts(row, "aliases", [row.require("gold_answer"), *aliases]),
    )


def _web_questions(row: Row, version: str) -> Example:
    """{qId, qText, answers}."""
    answers = texts(row, "answers", row.values.get("answers"))
    return Example(id=identity(row, "qId"), query=row.text("qText", row.require("qText")), answers=answers)


def _curated_trec(row: Row, version: str) -> Example:
    """CuratedTREC: the answer is one regular expression."""
    pattern = row.text("pattern", row.require("pattern"))
    return Example(id=identity(row, "id"), query=row.text("question", row.require("question")), answers=(pattern,))


def _ms_marco(row: Row, version: str) -> Example | None:
    """MS MARCO 2.1: its NLG task has the rows with a well-formed answer, and those answers."""
    written = row.require("wellFormedAnswers")
    answers = texts(row, "wellFormedAnswers", [] if written in ("[]", None) else written)
    if not answers:
        return None
    kind = row.string("query_type", row.values.get("query_type") or "")
    return Example(identity(row, "query_id"), row.text("query", row.require("query")), answers, kind=kind)


def _clue(row: Row, version: str) -> Example:
    """A Jeopardy clue with its answer, as SearchQA (lower-case names) or J! Archive (titles) writes it."""
    lower = "question" in row.values
    question, answer = ("question", "answer") if lower else ("Question", "Answer")
    return Example(
        id=identity(row, "id"),
        query=row.text(question, row.require(question)),
        answers=(row.text(answer, row.require(answer)),),
    )


def _claim(row: Row, version: str) -> Example:
    """FEVER and sets in its manner: a claim, its label, and pages or passages as evidence."""
    evidence: Any = row.values.get("evidence")
    pages = [item for item in evidence if isinstance(item, list)] if isinstance(evidence, list) else []
    entries = [item for item in evidence if isinstance(item, dict)] if isinstance(evidence, list) else []
    ids = [item.get("ctx_id") for item in entries if item.get("label") != "NOT_ENOUGH_INFO"]
    label = row.values.get("label", row.values.get("gold_label"))
    source = row.string("source", row.values.get("source") or "")
    sets = (tuple(dict.fromkeys(_page(sentence) for sentence in group if _page(sentence))) for group in pages)
    return Example(
        id=identity(row, "id"),
        query=row.text("claim", row.require("claim")),
        answers=() if label is None else (row.text("label", label),),
        kind=source,
        gold=keys(row, "evidence", ids, version),
        gold_titles=tuple(dict.fromkeys(group for group in sets if group)),
    )


def _page(sentence: Any) -> str:
    """The title of FEVER's [annotation, evidence, page, sentence]; empty where there is none."""
    page = sentence[2] if isinstance(sentence, list) and len(sentence) > 2 else None
    return fever_title(page) if isinstance(page, str) else ""


def fever_title(page: str) -> str:
    """FEVER's name of a page as a title: `Beautiful_-LRB-song-RRB-` is `Beautiful (song)`."""
    for name, sign in _ESCAPES.items():
        page = page.replace(name, sign)
    return page.replace("_", " ")


_ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", "-COLON-": ":"}


def _format(name: str, read: Read, *fields: str) -> Format:
    return Format(name, frozenset(fields), read)


# The first whose fields a row has; those that ask for more stand before those that ask for less.
FORMATS: tuple[Format, ...] = (
    _format("DPR retriever data", _dpr, "question", "positive_ctxs"),
    _format("KILT", _kilt, "input", "id"),
    _format("MS MARCO", _ms_marco, "query", "wellFormedAnswers"),
    _format("FEVER", _claim, "claim"),
    _format("SearchQA", _clue, "question", "answer", "category", "air_date"),
    _format("J! Archive", _clue, "Question", "Answer", "Category"),
    _format("TriviaQA", _trivia_qa, "Question", "Answer", "QuestionId"),
    _format("TriviaQA on the hub", _trivia_qa, "question", "answer", "question_id"),
    _format("answers with aliases", _aliases, "question", "gold_answer", "aliases"),
    _format("WebQuestions", _web_questions, "qText"),
    _format("CuratedTREC", _curated_trec, "type", "question", "pattern"),
    _format("questions and answers", _plain, "query"),
    _format("questions and answers", _plain, "question"),
)


def format_of(values: Mapping[str, Any]) -> Format | None:
    """The layout of a row; None where no layout has its fields."""
    return next((layout for layout in FORMATS if layout.fields <= values.keys()), None)
