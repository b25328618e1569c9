"""The page that maps AutoRAG's names to ours: every module stands there once, and everything named as ours exists."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from spolia.core.public_names import MODULE_OF
from spolia.errors import MeasureError
from spolia.evaluation.measures.registry import parse_measure
from spolia.models.http.chat import ChatModel
from spolia.models.protocols import CHAT, NEXT_TOKENS
from spolia.testing import HashingEmbedder
from tests.cases import check_each

DOCS = Path(__file__).resolve().parents[1] / "docs"
ELSEWHERE = {
    "PdfReader": "spolia.indexing.readers.pdf.reader",
    "DoclingReader": "spolia.indexing.readers.converters",
    "XbergReader": "spolia.indexing.readers.converters",
    "Ocr": "spolia.indexing.readers.pictures.image",
    "BERTScore": "spolia.evaluation.measures.answers.embedding_similarity",
}
MODULES = """
    pdfminer pdfplumber pypdfium2 pypdf pymupdf unstructuredpdf csv json unstructuredmarkdown bshtml
    unstructuredxml directory unstructured upstagedocumentparse llamaparse table_hybrid_parse token sentence
    sentencewindow semantic semanticdoublemerging simplefile sentencetransformerstoken recursivecharacter character
    konlpy kiwi add_file_name update_corpus two_hop_incremental random_single_hop range_single_hop
    pass_query_expansion query_decompose hyde multi_query_expansion bm25 porter_stemmer space ko_kiwi ko_kkma ko_okt
    sudachipy vectordb chroma milvus weaviate pinecone couchbase qdrant hybrid_rrf hybrid_cc pass_passage_augmenter
    prev_next_augmenter pass_reranker monot5 tart upr koreranker cohere_reranker rankgpt jina_reranker colbert_reranker
    sentence_transformer_reranker flag_embedding_reranker flag_embedding_llm_reranker time_reranker openvino_reranker
    voyageai_reranker mixedbreadai_reranker flashrank_reranker nvidia_reranker pass_passage_filter
    similarity_threshold_cutoff similarity_percentile_cutoff threshold_cutoff percentile_cutoff recency_filter
    pass_compressor tree_summarize refine longllmlingua fstring chat_fstring long_context_reorder window_replacement
    llama_index_llm openai_llm vllm vllm_api minimax_llm retrieval_f1 retrieval_recall retrieval_precision
    retrieval_ndcg retrieval_mrr retrieval_map retrieval_token_f1 retrieval_token_recall retrieval_token_precision
    bleu meteor rouge sem_score g_eval bert_score deepeval_faithfulness mean rank normalize_mean speed_threshold
    token_threshold evaluate validate restart_evaluate extract_best_config run_api run_web dashboard
""".split()  # noqa: SIM905
CELLS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (DOCS / "reference" / "autorag.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| AutoRAG |"))
]
OURS = sorted(
    {name for _, ours, _ in CELLS for name in re.findall(r"`([^`]+)`", ours)}
    | {name for *_, difference in CELLS for name in re.findall(r"`(spolia [^`]+|[A-Z]\w+)`", difference)}
)


JUDGE = ChatModel("judge", "http://127.0.0.1:1/v1", capabilities=frozenset((CHAT, NEXT_TOKENS)))


def test_every_module_of_autorag_stands_on_the_page_once() -> None:
    names = [name for theirs, *_ in CELLS for name in re.findall(r"`([^`]+)`", theirs)]
    assert not {name for name in names if names.count(name) > 1}
    assert not set(MODULES) - set(names)


def test_what_has_no_name_here_is_said_to_be_not_built() -> None:
    assert all("not built" in difference for _, ours, difference in CELLS if ours == "–")
    assert all(ours for _, ours, _ in CELLS)


@check_each("written", OURS)
def test_what_is_named_as_ours_exists(written: str) -> None:
    if written.startswith("spolia "):
        options = (DOCS / "reference" / "options.md").read_text()
        command, *flags = written.split(" --")
        part = options.partition(f"## {command}\n")[2].partition("\n## ")[0]
        assert part
        assert all(re.search(rf"`--{flag}[ `]", part) for flag in flags)
        return
    name, _, arguments = written.partition("(")
    if name in MODULE_OF or name in ELSEWHERE:
        target = getattr(import_module(MODULE_OF.get(name, ELSEWHERE.get(name, ""))), name)
        call = ast.parse(written.replace("…", "0") if arguments else f"{name}()", mode="eval").body
        assert isinstance(call, ast.Call)
        assert {keyword.arg for keyword in call.keywords} <= set(signature(target).parameters)
        return
    try:
        parse_measure(written, llm=JUDGE, embedder=HashingEmbedder())
    except MeasureError as error:
        pytest.fail(f"{written} is no name of ours: {error}")
