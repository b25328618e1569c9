"""Which measures there are, and how they are written."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeAlias

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import SetMeasure
from spolia.models.prompting import template
from spolia.models.protocols import Embedder, LanguageModel

HOME = "spolia.evaluation.measures"
WRITTEN: Mapping[str, str] = {
    "R@k": "rank_measures.Recall",
    "full@k": "rank_measures.FullRecall",
    "P@k": "rank_measures.Precision",
    "Hit@k": "rank_measures.AnyHit",
    "MRR": "rank_measures.ReciprocalRank",
    "MAP": "rank_measures.AveragePrecision",
    "nDCG@k": "rank_measures.NDCG",
    "Rprec": "rank_measures.RPrecision",
    "SetP": "rank_measures.SetPrecision",
    "SetR": "rank_measures.SetRecall",
    "SetF1": "rank_measures.SetF1",
    "AnswerHit@k": "answers.string_match.AnswerHit",
    "EM": "answers.string_match.ExactMatch",
    "F1": "answers.string_match.F1",
    "Acc": "answers.string_match.Accuracy",
    "PrefRAG-Avg": "answers.string_match.PrefRAGAverage",
    "ROUGE-1": "answers.ngrams.Rouge1",
    "ROUGE-2": "answers.ngrams.Rouge2",
    "ROUGE-L": "answers.ngrams.RougeL",
    "BLEU": "answers.ngrams.BLEU",
    "SentenceBLEU": "answers.ngrams.SentenceBLEU",
    "METEOR-no-synonyms": "answers.meteor.Meteor",
    "SemScore": "answers.embedding_similarity.SemScore",
    "BERTScore": "answers.embedding_similarity.BERTScore",
    "CiteP": "citations.CitationPrecision",
    "CiteR": "citations.CitationRecall",
    "Coverage": "abstention.Coverage",
    "Risk": "abstention.SelectiveRisk",
    "AbstentionF1": "abstention.AbstentionF1",
    "TopScore": "abstention.TopScore",
    "AURC": "abstention.AURC",
    "ATC": "costs.AverageTokens",
    "USD": "costs.UsDollars",
    "Seconds": "costs.Seconds",
    "Calls": "costs.RetrievalCalls",
    "UsedCalls": "costs.UsedCalls",
    "DocsShown": "costs.DocumentsShown",
    "ContextPrecision": "judged.ragas.ContextPrecision",
    "Faithfulness": "judged.ragas.Faithfulness",
    "AnswerRelevancy": "judged.ragas.AnswerRelevancy",
    "Correctness": "judged.ragas.Correctness",
    "GEval": "judged.g_eval.GEval",
    "ALCE-R": "judged.citation_support.SupportRecall",
    "ALCE-P": "judged.citation_support.SupportPrecision",
}
"""The class of each, in the order in which they are named to people. Only the requested ones are imported."""

ALSO: Mapping[str, str] = {
    "precision": "p",
    "recall": "r",
    "accuracy": "acc",
    "exact-match": "em",
    "exactmatch": "em",
    "success": "hit",
    "rouge": "rouge-l",
    "meteor": "meteor-no-synonyms",
}
"""Other names of some."""
_PLACES = {written.removesuffix("@k").lower(): place for written, place in WRITTEN.items()}


def class_of(name: str) -> type[SetMeasure] | None:
    """The measure of a name, ignoring case; None if unknown.

    >>> class_of("ndcg").called
    'nDCG'
    """
    place = _PLACES.get(name.lower())
    if place is None:
        return None
    module, _, cls = place.rpartition(".")
    found: type[SetMeasure] = getattr(import_module(f"{HOME}.{module}"), cls)
    return found


def nearest(text: str) -> str:
    """The measure that somebody may have meant; empty where nothing is near.

    >>> nearest("nDGC@10"), nearest("R10"), nearest("precision@5"), nearest("colour")
    ('nDCG@10', 'R@10', 'P@5', '')
    """
    found = re.match(r"\s*([A-Za-z][A-Za-z-]*?(?:-[0-9L])?)[@_ ]?([1-9][0-9]*|)\s*(?:\(|$)", text)
    name, k = (found[1].lower(), found[2]) if found else ("", "")
    if f"{name}@" in text.lower() and name in _PLACES:  # the name is none of what is wrong
        return ""
    near = ALSO.get(name) or next(iter(get_close_matches(name, _PLACES, 1, 0.7)), "")
    written = next((one for one in WRITTEN if one.removesuffix("@k").lower() == near), "")
    return written.replace("@k", f"@{k or 5}")


KNOWN = ", ".join(WRITTEN)
_WRITTEN = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(?:@([1-9][0-9]{0,5}))?(?:\((.*)\))?", re.ASCII | re.DOTALL)
_ALSO = {"recall": "R"}


Own: TypeAlias = Sequence[type[SetMeasure]]


def parse_measure(
    text: str, *, llm: LanguageModel | None = None, embedder: Embedder | None = None, own: Own = ()
) -> SetMeasure:
    """The measure that is written like this; upper and lower case of its name are the same. A judge's role is written
    as its prompt file.

    Args:
        llm: for measures that a language model judges.
        embedder: for those that compare embeddings.
        own: classes of your own, which are written by what they are `called`.

    >>> str(parse_measure("ndcg@10")), str(parse_measure("MRR(share=0.5)"))
    ('nDCG@10', 'MRR(share=0.5)')
    >>> str(parse_measure('AURC(of=F1(rule="squad2"))')), str(parse_measure("F1(rule=squad2)"))
    ('AURC(of=F1(rule="squad2"))', 'F1(rule="squad2")')
    """
    written = _WRITTEN.fullmatch(text.strip())
    name, k, inside = written.groups() if written else ("", None, None)
    name = _ALSO.get(name.lower(), name)
    cls = _class(name, own)
    if cls is None:
        if near := nearest(text):
            raise MeasureError(
                f"No measure is written {text!r}. Did you mean {near}? docs/reference/measures.md has them all."
            )
        there = ", ".join([*(one.called for one in own), KNOWN])
        raise MeasureError(f"No measure is written {text!r}. Write one of: {there}, with k from 1, for example R@5.")
    models = {"llm": llm, "embedder": embedder}
    declared = fields(cls)  # type: ignore[arg-type]
    texts = {f.name for f in declared if f.type in (str, "str")}  # whose quotes a shell may have taken away
    given = dict(_fields(text, inside or "", {**models, "own": own}, texts)) | ({"k": int(k)} if k else {})
    has_no_k = any(f.name == "k" and f.default is MISSING for f in declared)
    if (f"{cls.called}@k" in WRITTEN or has_no_k) and "k" not in given:
        raise MeasureError(f"{text!r} does not say how many places to look at. Write {name}@5, for example.")
    return _made(cls, text, given, models)


def parse_measures(
    text: str, *, llm: LanguageModel | None = None, embedder: Embedder | None = None, own: Own = ()
) -> tuple[SetMeasure, ...]:
    """Measures separated by commas, each once, in order.

    Args:
        llm, embedder, own: as for `parse_measure`.

    Raises:
        MeasureError: one is not written like this, or the text names none.

    >>> [str(measure) for measure in parse_measures('R@5, F1(rule="hotpotqa"), R@5')]
    ['R@5', 'F1(rule="hotpotqa")']
    """
    found = dict.fromkeys(parse_measure(part, llm=llm, embedder=embedder, own=own) for part in _listed(text))
    if not found:
        raise MeasureError(f"{text!r} names no measure. Write some of: {KNOWN}, separated by commas.")
    return tuple(found)


def as_measures(given: str | Iterable[str | SetMeasure]) -> Iterator[SetMeasure]:
    """Measures, also as they are written.

    >>> [str(one) for one in as_measures(["R@5, MRR", parse_measure("P@3")])]
    ['R@5', 'MRR', 'P@3']
    """
    for one in (given,) if isinstance(given, str) else given:
        if isinstance(one, str):
            yield from parse_measures(one)
        elif isinstance(one, SetMeasure):
            yield one
        else:
            raise MeasureError(f"{one!r} is not a measure. Write parse_measure('R@5'), for example.")


def _listed(text: str) -> list[str]:
    """The measures in a list; a comma between brackets does not separate."""
    source = f"_({text.strip(' ,')})"
    call = _call(source)
    if call is None or call.keywords:
        raise MeasureError(f"{text!r} is not a list of measures. Write some of: {KNOWN}, separated by commas.")
    return [ast.get_source_segment(source, one) or "" for one in call.args]


def _class(name: str, own: Own) -> type[SetMeasure] | None:
    mine, known_here = {cls.called.lower(): cls for cls in own}, class_of(name)
    if (found := mine.get(name.lower())) is not None and known_here is not None:
        raise MeasureError(
            f"{found.__qualname__} is called {found.called!r}, as a measure of Spolia is. Call it something else."
        )
    return found or known_here


def _fields(text: str, inside: str, how: dict[str, Any], texts: set[str]) -> Iterator[tuple[str, Any]]:
    """The fields that are written between brackets: constants and measures."""
    source = f"_({inside})"
    call = _call(source)
    if call is None or call.args or not all(keyword.arg for keyword in call.keywords):
        example = "Write name=value, as in F1(rule='squad2')."
        raise MeasureError(f"The arguments of {text!r} cannot be read. {example}")
    for keyword in call.keywords:
        value: Any = keyword.value
        part = ast.get_source_segment(source, value) or ""
        if isinstance(value, ast.Constant):
            yield str(keyword.arg), value.value
        elif isinstance(value, ast.Name) and keyword.arg in texts:
            yield keyword.arg, value.id
        else:
            yield str(keyword.arg), parse_measure(part, **how)


def _call(source: str) -> ast.Call | None:
    """A call as it is written; None where it is none."""
    try:
        found = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return found if isinstance(found, ast.Call) and ast.get_source_segment(source, found.func) == "_" else None


def _made(cls: type[SetMeasure], text: str, given: dict[str, Any], models: dict[str, Any]) -> SetMeasure:
    places = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if unknown := [name for name in given if name not in places]:
        fine = ", ".join(name for name in places if name != "k") or "none"
        raise MeasureError(f"{cls.called} has no field {unknown[0]!r}, as in {text!r}. It has: {fine}.")
    for name in models:
        if name in places:
            if models[name] is None:
                what = "a language model" if name == "llm" else "an embedder"
                option = ", or --llm URL --model NAME on the command line" if name == "llm" else ""
                raise MeasureError(
                    f"{cls.called} needs {what}. Write parse_measure({cls.called!r}, {name}=...){option}."
                )
            given[name] = models[name]
    for place in fields(cls):  # type: ignore[arg-type]
        role: Any = place.default
        if hasattr(role, "prompt") and isinstance(file := given.get(place.name), str):
            template.read(file)  # which must be there
            given[place.name] = role.but(prompt=file)
    try:
        return cls(**given)
    except TypeError as error:
        raise MeasureError(f"{text!r} holds a value that does not fit: {error}.") from error
