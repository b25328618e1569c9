"""Summaries that no language model writes, and metadata in what is indexed."""

from __future__ import annotations

import pytest

from spolia.errors import WiringError
from spolia.indexing.readers.markup.markdown import MarkdownReader
from spolia.indexing.readers.reader import Blob
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.structure.regions import AttachMetadata
from spolia.indexing.structure.topics import ExtractiveSummary
from spolia.indexing.transforms.text_enrichment import HypotheticalQuestions
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.stores.definition import Part, document_node
from spolia.stores.groups.nodes import cut_document
from spolia.testing import HashingEmbedder
from spolia.types import Document

SEA = "Taxes are due. The sea rises.\nThe deep sea falls. The blue sea is deep. Goodbye."


def summary(text: str, transform: ExtractiveSummary) -> list[str]:
    document = Document("d", text)
    return [piece.text for piece in transform(Part(document_node(document), document))]


def test_the_first_sentences_are_a_summary() -> None:
    assert summary(SEA, ExtractiveSummary(2)) == ["Taxes are due. The sea rises."]
    assert summary("One.", ExtractiveSummary(2)) == ["One."]
    assert summary("... \n", ExtractiveSummary(2)) == []


def test_the_sentences_nearest_to_the_mean_of_all_are_a_summary_in_their_order() -> None:
    texts = summary(SEA, ExtractiveSummary(2, HashingEmbedder(256)))
    assert texts == ["The deep sea falls. The blue sea is deep."]


def test_metadata_are_indexed_and_shown_above_the_text_but_are_no_part_of_it() -> None:
    source = Blob("a.md", b"# Tides\n\nThe sea rises. It falls.")
    document = MarkdownReader().read(source).document.but(meta=(("author", "Ann"), ("author", "Bob"), ("year", 1999)))
    plain = list(cut_document(document, Sentences()))
    nodes = list(cut_document(document, AttachMetadata(Sentences(), ("year", "author", "isbn"))))
    assert [(node.text, node.span) for node in nodes] == [(node.text, node.span) for node in plain]
    assert nodes[-1].shown_text == "Tides\nyear: 1999\nauthor: Ann, Bob\nIt falls."
    assert nodes[-1].indexed_text == nodes[-1].shown_text


def test_metadata_that_are_not_shown_are_indexed_with_title_and_headings() -> None:
    document = MarkdownReader().read(Blob("a.md", b"# Tides\n\nThe sea rises.")).document.but(meta=(("year", 1999),))
    titled, hidden = (
        list(cut_document(document, AttachMetadata(Sentences(), ("year",), titled))) for titled in (True, False)
    )
    assert hidden[-1].shown_text == "Tides\nThe sea rises."
    assert hidden[-1].indexed_text == "year: 1999\nTides\nThe sea rises."
    assert titled[-1].indexed_text == "Tides\nyear: 1999\nThe sea rises."


def test_metadata_stand_before_a_question_that_is_searched() -> None:
    model = ScriptedModel(("What rises?",))
    document = Document("d", "The sea rises.", meta=(("year", 1999),))
    (node,) = cut_document(document, AttachMetadata(HypotheticalQuestions(model), ("year",)))
    assert node.indexed_text == "year: 1999\nWhat rises?"
    assert node.shown_text == "year: 1999\nThe sea rises."


def test_what_has_none_of_the_fields_stays_as_it_was() -> None:
    document = Document("d", "The sea rises.")
    assert list(cut_document(document, AttachMetadata(Sentences(), ("year",)))) == list(
        cut_document(document, Sentences())
    )


def test_a_summary_of_no_sentences_is_refused() -> None:
    with pytest.raises(WiringError):
        ExtractiveSummary(0)


def test_bounds_on_calls_are_those_of_what_is_wrapped() -> None:
    asking = HypotheticalQuestions(ScriptedModel(("What rises?",)))
    assert AttachMetadata(asking, ("year",)).calls() == asking.calls()
    assert AttachMetadata(asking, ("year",)).fanout() == asking.fanout()
