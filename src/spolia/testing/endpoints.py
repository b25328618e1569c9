"""What the server of `spolia.testing.server` replies beside chats: simple, and the same for the same request."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any


def embedded(asked: Mapping[str, Any], dimension: int) -> dict[str, Any]:
    """A vector for each text, by hash."""
    rows = [{"index": at, "embedding": vector(text, dimension)} for at, text in enumerate(asked["input"])]
    count = sum(len(text.split()) for text in asked["input"])
    return {"object": "list", "data": rows[::-1], "usage": {"prompt_tokens": count, "total_tokens": count}}


def vector(text: str, dimension: int) -> list[float]:
    """Numbers from -1 to 1 that depend on the text."""
    numbers = b"".join(hashlib.sha256(f"{at}|{text}".encode()).digest() for at in range(dimension // 32 + 1))
    return [(number - 127.5) / 127.5 for number in numbers[:dimension]]


def reranked(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The share of the words of query and text together that is in both; best first."""
    query = _words(asked["query"])
    scores = [len(query & found) / len(query | found) for found in map(_words, asked["documents"])]
    rows = [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]
    rows.sort(key=lambda row: -row["relevance_score"])
    return {"results": rows[: asked["top_n"]], "usage": {"total_tokens": 9}}


def completed(asked: Mapping[str, Any], text: str, logprob: float | None) -> dict[str, Any]:
    """The text, after the prompt where that is to be echoed; a word with the blank before it is a token."""
    words = re.findall(r"\s*\S+\s*$|\s*\S+|\s+", text)
    made = words[: asked["max_tokens"]]
    sent = re.findall(r"\s*\S+|\s+", asked["prompt"]) if asked.get("echo") else []
    tokens = sent + made
    choice: dict[str, Any] = {"index": 0, "text": "".join(tokens)}
    choice["finish_reason"] = "length" if len(made) < len(words) else "stop"
    if asked.get("logprobs") is not None and logprob is not None:
        starts = [sum(map(len, tokens[:at])) for at in range(len(tokens))]
        numbers = [None if sent and at == 0 else logprob * len(token) for at, token in enumerate(tokens)]
        top = {word: logprob * (at + 1) for at, word in enumerate(words[: asked["logprobs"]])}
        choice["logprobs"] = {"tokens": tokens, "token_logprobs": numbers, "text_offset": starts, "top_logprobs": [top]}
    return {
        "choices": [choice],
        "usage": {"prompt_tokens": len(asked["prompt"].split()), "completion_tokens": len(made)},
    }


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
