"""Real PDFs from the test fixtures of other projects, and passages that were picked by eye from their pages."""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import EncryptedDocument
from spolia.indexing.readers.pdf.reader import PdfReader
from spolia.indexing.readers.reader import Blob, Reading
from tests.cases import check_each

pytest.importorskip("pypdfium2")

PASSAGES = {
    "ar-roberta.pdf": (  # two columns; where a column, a page or a line with a broken word ends, and beside tables
        "is competitive with all other recently published methods. We release our model, pretraining and fine-tuning "
        "code implemented in PyTorch (Paszke et al., 2017). 2 Background In this section, we give a brief overview",
        "and some of the training choices that we will examine experimentally in the following section. 2.1 Setup",
        "subsequently finetuned using end-task labeled data. 2.2 Architecture BERT uses the now ubiquitous transformer "
        "architecture (Vaswani et al., 2017), which we will not review in detail.",
        "replaced with [MASK], 10% are left unchanged, and 10% are replaced by a randomly selected vocabulary token. "
        "In the original implementation, random masking and replacement is performed once in the beginning",
        "NSP is a binary classification loss for predicting whether two segments follow each other",
        "with mini-batches containing B = 256 sequences of maximum length T = 512 tokens. 2.5 Data BERT is trained on",
        "which totals 16GB of uncompressed text.3 3 Experimental Setup In this section",
        "We reimplement BERT in FAIRSEQ (Ott et al., 2019). We primarily follow the original BERT",
        "data (epochs) and have the same computational cost. task performance of BERTBASE as we increase the batch",
        "parallelize via distributed data parallel training,8 and in later experiments we train with batches of 8K",
        "that can still encode any input text without introducing any “unknown” tokens. 8Large batch training",
        "natively in FAIRSEQ (Ott et al., 2019). The original BERT implementation (Devlin et al., 2019) uses a "
        "character-level BPE vocabulary of size 30K",
        "containing 50K subword units, without any additional preprocessing or tokenization of the input.",
        "A more detailed comparison of these encodings is left to future work. 5 RoBERTa In the previous section",
        "additional parameters for BERTBASE and BERTLARGE, respectively. Early experiments revealed",
        "pretrain for 100K steps over a comparable BOOKCORPUS plus WIKIPEDIA dataset as was used in",
        "SENTENCES. We remove the NSP loss. Results Table 2 shows results for the four different settings.",
        "is not able to learn long-range dependencies. We next compare training without the NSP loss and training with "
        "blocks of text from a single document (DOC-SENTENCES).",
        "for easier comparison with related work. 4.3 Training with large batches Past work in Neural Machine",
        "XLNet, while we use the same learning rate for all layers. For SQuAD v1.1 we follow the same finetuning",
        "question is answerable; we train this classifier jointly with the span predictor by summing the",
        "nating each candidate answer with the corresponding question and passage. We then encode each of these four",
        "128 tokens and, if needed, the passage so that the total length is at most 512 tokens. Results on the RACE",
        "on both middle-school and high-school settings. 6 Related Work Pretraining methods have been designed",
        "as a reference point for better understanding the relative performance of all of these methods.",
        "XLNet (Yang et al., 2019) have brought significant performance gains, but it can be challenging to determine "
        "which aspects of the methods contribute the most. Training is computationally expensive",
        "limiting our ability to measure the effects of the modeling advances. ∗Equal contribution.",
        "control for training set size effects. When controlling for training data, our improved training procedure",
        "perturbed autoregressive language modeling (Yang et al., 2019).2 In summary, the contributions of this "
        "paper are: (1) We present a set of important BERT design choices and training strategies and introduce",
        "On the SQuAD v2.0 development set, RoBERTa sets a new state-of-the-art, improving over XLNet by 0.4 points "
        "(EM) and 0.6 points (F1). We also submit RoBERTa to the public SQuAD 2.0 leaderboard",
        "top scoring system among those that do not rely on data augmentation. 5.3 RACE Results In RACE, systems are "
        "provided with a passage of text, an associated question, and four candidate answers.",
        "objective. However, newer methods have improved performance by multi-task fine tuning (Dong et al., 2019), "
        "incorporating entity embeddings (Sun et al., 2019), span prediction (Joshi et al., 2019)",
    ),
    "un-multi-column-2p.pdf": (  # two columns below a head over both
        "danqic@cs.princeton.edu Abstract Open-domain question answering relies on efficient passage retrieval to "
        "select candidate contexts",
        "by a simple dual-encoder framework. When evaluated on a wide range of open-domain QA datasets, our dense "
        "retriever outperforms a strong Lucene-BM25 system greatly",
        "helps our end-to-end QA system establish new state-of-the-art on multiple open-domain QA benchmarks.1 "
        "1 Introduction Open-domain question answering (QA) (Voorhees, 1999) is a task",
        "Although reducing open-domain QA to machine reading is a very reasonable strategy, a huge performance "
        "degradation is often observed in practice2, indicating the needs of improving retrieval. ∗Equal contribution",
        "from above 80% to less than 40% (Yang et al., 2019a). Retrieval in open-domain QA is usually implemented "
        "using TF-IDF or BM25",
        "representing the question and context in high-dimensional, sparse vectors (with weighting).",
        "setting new state-of-the-art results on multiple open-domain",
        "the corresponding representations could be suboptimal. In this paper, we address the question",
        "of diversified topics. More specifically, we assume the extractive QA setting, in which the answer is "
        "restricted to a span appearing in one or more passages in the corpus.",
        "contains a span that answers the question. 3 Dense Passage Retriever (DPR) We focus our research in this work "
        "on improving the retrieval component in open-domain QA.",
    ),
    "pp-multicolumn.pdf": (
        "Your Name January 3, 2024 Abstract This is a sample document with two columns filled with Lorem Ipsum text.",
        "Vivamus viverra fermentum felis. Donec nonummy pellentesque ante. Phasellus adipiscing semper elit.",
        "Pellentesque habitant morbi tristique senectus et netus et malesuada fames ac turpis egestas.",
        "Nam vulputate metus eu enim. Vestibulum pellentesque felis eu massa. Quisque ullamcorper placerat ipsum.",
    ),
}
OTHERWISE = {("pp-habibi.pdf", "بيبي habibi"): "the glyphs have no sense; the word stands beside them, whole"}


def fold(text: str) -> str:
    """Ligatures apart, no blanks, no marks between cells: what one extractor has and another one has not."""
    return "".join(unicodedata.normalize("NFKC", text).replace(" | ", "").split())


@cache
def rows(datasets: Path) -> list[dict[str, Any]]:
    lines = (datasets / "documents" / "manifest.jsonl").read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["format"] == "pdf"]


@cache
def read(datasets: Path, name: str) -> Reading:
    return PdfReader().read(Blob(name, datasets / "documents" / "files" / name))


@pytest.mark.slow
def test_all_that_the_manifest_names_is_found(shared_datasets: Path) -> None:
    assert len(rows(shared_datasets)) == 23
    for row in rows(shared_datasets):
        name = Path(row["file"]).name
        if row["encrypted"]:
            with pytest.raises(EncryptedDocument):
                read(shared_datasets, name)
            continue
        reading = read(shared_datasets, name)
        for words in row["must_contain"]:
            assert (fold(words) in fold(reading.document.text)) != ((name, words) in OTHERWISE), (
                name,
                words,
            )
        if row["needs_ocr"]:
            assert reading.ocr_pages or "need OCR" in reading.warnings[0]
        else:
            assert (reading.ocr_pages, reading.empty_pages, reading.warnings) == ((), (), ())


@check_each(("name", "passage"), [(name, each) for name, some in PASSAGES.items() for each in some])
def test_passages_are_in_reading_order(shared_datasets: Path, name: str, passage: str) -> None:
    text = " ".join(read(shared_datasets, name).document.text.split())
    assert passage in text


def test_words_that_are_written_from_the_right_are_in_the_order_in_which_they_are_read(shared_datasets: Path) -> None:
    assert "حَبيبي" in read(shared_datasets, "pp-habibi.pdf").document.text


def test_tables_of_papers_and_reports_keep_their_cells(shared_datasets: Path) -> None:
    def tables(name: str) -> list[tuple[tuple[str, ...], ...]]:
        return [region.rows for region in read(shared_datasets, name).document.regions if region.kind == "table"]

    assert tables("pp-multicolumn.pdf")[0][1] == ("Austria", "8.9", "83,879", "Vienna", "German")
    assert tables("dl-2305.03393v1-pg9.pdf")[0][2] == (
        "6", "6", "OTSL", "0.965", "0.934", "0.955", "0.88", "2.73",
    )  # fmt: skip
    assert tables("un-layout-parser-paper-with-table.pdf")[0][2] == (
        "PRImA [3]", "M", "-", "Layouts of scanned modern magazines and scientific reports",
    )  # fmt: skip
    assert tables("mk-SPARSE-2024-INV-1234_borderless_table.pdf")[0][3] == ("SKU-9201", "", "780", "778", "", "OK")
    assert len(tables("ar-roberta.pdf")) == 10
    assert ("RoBERTa", "83.2", "86.5", "81.3") in tables("ar-roberta.pdf")[6]


@pytest.mark.parametrize(
    "name", ["ar-distilbert.pdf", "pp-002-trivial-libre-office-writer.pdf", "pp-pdflatex-4-pages.pdf",
             "un-fake-memo.pdf", "un-multi-column-2p.pdf"]
)  # fmt: skip
def test_prose_of_real_files_is_no_table(shared_datasets: Path, name: str) -> None:
    assert all(region.kind != "table" for region in read(shared_datasets, name).document.regions)


def test_the_headings_of_a_paper_without_an_outline(shared_datasets: Path) -> None:
    document = read(shared_datasets, "ar-roberta.pdf").document
    assert document.title == "RoBERTa: A Robustly Optimized BERT Pretraining Approach"
    headings = [(heading.level, heading.text) for heading in document.headings]
    assert headings[:6] == [
        (1, "Abstract"), (1, "1 Introduction"), (1, "2 Background"),
        (2, "2.1 Setup"), (2, "2.2 Architecture"), (2, "2.3 Training Objectives"),
    ]  # fmt: skip
    assert (2, "4.2 Model Input Format and Next Sentence Prediction") in headings


def test_attached_files_of_a_real_file(shared_datasets: Path) -> None:
    path = shared_datasets / "documents" / "files" / "pp-with-attachment.pdf"
    assert [part.uri for part in PdfReader().parts(Blob("a.pdf", path))] == ["a.pdf/image.png"]
