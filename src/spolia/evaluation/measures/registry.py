"""Registry of measures, and the parser of their notation."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, TypeAlias

from spolia.core.public_names import load_name
from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import SetMeasure
from spolia.models.prompting import template
from spolia.models.protocols import Embedder, LanguageModel

HOME = "spolia.evaluation.measures"
CLASSES: Mapping[str, str] = {
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

ALIASES: Mapping[str, str] = {
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
_PLACES = {notation.removesuffix("@k").lower(): place for notation, place in CLASSES.items()}


def class_of(name: str) -> type[SetMeasure] | None:
    """Return the measure class of a name, ignoring case; None if unknown.

    >>> class_of("ndcg").notation
    'nDCG'
    """
    place = _PLACES.get(name.lower())
    if place is None:
        return None
    module, _, cls = place.rpartition(".")
    measure_class: type[SetMeasure] = load_name(f"{HOME}.{module}", cls)
    return measure_class


def suggest_notation(text: str) -> str:
    """Return the measure that somebody may have meant; empty if nothing is near.

    >>> [suggest_notation(text) for text in ("nDGC@10", "R10", "precision@5", "colour")]
    ['nDCG@10', 'R@10', 'P@5', '']
    """
    match = re.match(r"\s*([A-Za-z][A-Za-z-]*?(?:-[0-9L])?)[@_ ]?([1-9][0-9]*|)\s*(?:\(|$)", text)
    name, k = (match[1].lower(), match[2]) if match else ("", "")
    if f"{name}@" in text.lower() and name in _PLACES:  # the name is none of what is wrong
        return ""
    close_name = ALIASES.get(name) or next(iter(get_close_matches(name, _PLACES, 1, 0.7)), "")
    notation = next((candidate for candidate in CLASSES if candidate.removesuffix("@k").lower() == close_name), "")
    return notation.replace("@k", f"@{k or 5}")


NOTATIONS = ", ".join(CLASSES)
_NOTATION = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(?:@([1-9][0-9]{0,5}))?(?:\((.*)\))?", re.ASCII | re.DOTALL)
_LONG_NAMES = {"recall": "R"}


Own: TypeAlias = Sequence[type[SetMeasure]]


def parse_measure(
    text: str, *, llm: LanguageModel | None = None, embedder: Embedder | None = None, own: Own = ()
) -> SetMeasure:
    """Parse a measure from its notation; upper and lower case of its name are the same. Write a judge's role as its
    prompt file.

    Args:
        llm: for measures that a language model judges.
        embedder: for those that compare embeddings.
        own: classes of your own, which are written by what they are `called`.

    >>> str(parse_measure("ndcg@10")), str(parse_measure("MRR(share=0.5)"))
    ('nDCG@10', 'MRR(share=0.5)')
    >>> str(parse_measure('AURC(of=F1(rule="squad2"))')), str(parse_measure("F1(rule=squad2)"))
    ('AURC(of=F1(rule="squad2"))', 'F1(rule="squad2")')
    """
    match = _NOTATION.fullmatch(text.strip())
    name, k, arguments = match.groups() if match else ("", None, None)
    name = _LONG_NAMES.get(name.lower(), name)
    cls = _find_class(name, own)
    if cls is None:
        if suggestion := suggest_notation(text):
            raise MeasureError(
                f"No measure is written {text!r}. Did you mean {suggestion}? docs/reference/measures.md has them all."
            )
        choices = ", ".join([*(measure.notation for measure in own), NOTATIONS])
        raise MeasureError(f"No measure is written {text!r}. Write one of: {choices}, with k from 1, for example R@5.")
    models = {"llm": llm, "embedder": embedder}
    declared = fields(cls)  # type: ignore[arg-type]
    texts = {f.name for f in declared if f.type in (str, "str")}  # whose quotes a shell may have taken away
    values = dict(_parse_fields(text, arguments or "", {**models, "own": own}, texts)) | ({"k": int(k)} if k else {})
    has_no_k = any(f.name == "k" and f.default is MISSING for f in declared)
    if (f"{cls.notation}@k" in CLASSES or has_no_k) and "k" not in values:
        raise MeasureError(f"{text!r} does not say how many places to look at. Write {name}@5, for example.")
    return _build_measure(cls, text, values, models)


def parse_measures(
    text: str, *, llm: LanguageModel | None = None, embedder: Embedder | None = None, own: Own = ()
) -> tuple[SetMeasure, ...]:
    """Parse measures separated by commas, each once, in order.

    Args:
        llm, embedder, own: as for `parse_measure`.

    Raises:
        MeasureError: one is not written like this, or the text names none.

    >>> [str(measure) for measure in parse_measures('R@5, F1(rule="hotpotqa"), R@5')]
    ['R@5', 'F1(rule="hotpotqa")']
    """
    measures = dict.fromkeys(parse_measure(part, llm=llm, embedder=embedder, own=own) for part in _split_measures(text))
    if not measures:
        raise MeasureError(f"{text!r} names no measure. Write some of: {NOTATIONS}, separated by commas.")
    return tuple(measures)


def as_measures(measures: str | Iterable[str | SetMeasure]) -> Iterator[SetMeasure]:
    """Yield measures, and parse notations among them.

    >>> [str(one) for one in as_measures(["R@5, MRR", parse_measure("P@3")])]
    ['R@5', 'MRR', 'P@3']
    """
    for measure in (measures,) if isinstance(measures, str) else measures:
        if isinstance(measure, str):
            yield from parse_measures(measure)
        elif isinstance(measure, SetMeasure):
            yield measure
        else:
            raise MeasureError(f"{measure!r} is not a measure. Write parse_measure('R@5'), for example.")


def _split_measures(text: str) -> list[str]:
    """Split a list of measures; a comma between brackets does not separate."""
    # Python's parser knows which commas stand between brackets or quotes.
    source = f"_({text.strip(' ,')})"
    call = _parse_call(source)
    if call is None or call.keywords:
        raise MeasureError(f"{text!r} is not a list of measures. Write some of: {NOTATIONS}, separated by commas.")
    return [ast.get_source_segment(source, argument) or "" for argument in call.args]


def _find_class(name: str, own: Own) -> type[SetMeasure] | None:
    user_classes, builtin_class = {cls.notation.lower(): cls for cls in own}, class_of(name)
    if (user_class := user_classes.get(name.lower())) is not None and builtin_class is not None:
        raise MeasureError(
            f"{user_class.__qualname__} is called {user_class.notation!r}, as a measure of Spolia is. Call it "
            "something else."
        )
    return user_class or builtin_class


def _parse_fields(text: str, arguments: str, options: dict[str, Any], texts: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the fields between the brackets of a measure: constants and measures."""
    source = f"_({arguments})"
    call = _parse_call(source)
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
            yield str(keyword.arg), parse_measure(part, **options)


def _parse_call(source: str) -> ast.Call | None:
    """Parse the call that a text writes; None if it is none."""
    try:
        expression = ast.parse(source, mode="eval").body
    # Besides syntax errors, NUL bytes raise ValueError, and deep nesting the other two.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return (
        expression
        if isinstance(expression, ast.Call) and ast.get_source_segment(source, expression.func) == "_"
        else None
    )


def _build_measure(cls: type[SetMeasure], text: str, values: dict[str, Any], models: dict[str, Any]) -> SetMeasure:
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if unknown := [name for name in values if name not in names]:
        choices = ", ".join(name for name in names if name != "k") or "none"
        raise MeasureError(f"{cls.notation} has no field {unknown[0]!r}, as in {text!r}. It has: {choices}.")
    for name in models:
        if name in names:
            if models[name] is None:
                missing = "a language model" if name == "llm" else "an embedder"
                option = ", or --llm URL --model NAME on the command line" if name == "llm" else ""
                raise MeasureError(
                    f"{cls.notation} needs {missing}. Write parse_measure({cls.notation!r}, {name}=...){option}."
                )
            values[name] = models[name]
    for declared in fields(cls):  # type: ignore[arg-type]
        role: Any = declared.default
        if hasattr(role, "prompt") and isinstance(file := values.get(declared.name), str):
            template.read(file)  # which must be there
            values[declared.name] = role.but(prompt=file)
    try:
        return cls(**values)
    except TypeError as error:
        raise MeasureError(f"{text!r} holds a value that does not fit: {error}.") from error
