from pathlib import Path

from haystack import Pipeline
from haystack.components.builders import AnswerBuilder, ChatPromptBuilder
from haystack.components.converters import TextFileToDocument
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore

store = InMemoryDocumentStore()
indexing = Pipeline()
indexing.add_component("read", TextFileToDocument())
indexing.add_component("split", DocumentSplitter(split_by="word", split_length=200))
indexing.add_component("write", DocumentWriter(store))
indexing.connect("read", "split")
indexing.connect("split", "write")
indexing.run({"read": {"sources": list(Path("docs").rglob("*.md"))}})

template = """Answer the question from the passages. Cite them by number, as [1].
{% for document in documents %}
[{{ loop.index }}] {{ document.content }}
{% endfor %}
Question: {{ question }}"""
asking = Pipeline()
asking.add_component("search", InMemoryBM25Retriever(store, top_k=5))
asking.add_component("prompt", ChatPromptBuilder([ChatMessage.from_user(template)], required_variables="*"))
asking.add_component("llm", OpenAIChatGenerator(model="scripted"))
asking.add_component("answer", AnswerBuilder(reference_pattern=r"\[(\d+)\]"))
asking.connect("search.documents", "prompt.documents")
asking.connect("search.documents", "answer.documents")
asking.connect("prompt", "llm")
asking.connect("llm.replies", "answer.replies")
question = "Which databases hold the vectors of a store?"
inputs = {"search": {"query": question}, "prompt": {"question": question}, "answer": {"query": question}}
answer = asking.run(inputs)["answer"]["answers"][0]
print(answer.data, *(document.meta["file_path"] for document in answer.documents))
