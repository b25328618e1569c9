"""What each result is judged by: its numbers by name, and what each of them is to be at most or at least.

A number without a limit is noted and no more. Limits are those that were set before anything was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from results import Judged, Limit, least, most

Result: TypeAlias = Mapping[str, Any]

ANON_MB = 1_500
INDEXED, ASKED = 5.0, 15.0
"""As many times as fast as the peer: indexing, and asking by words."""
NEAREST = {"recall": least(0.98), "p95_cpu_ms": most(1.0)}
FILTERED = {"recall": least(0.99), "p95_cpu_ms": most(5.0)}
WHOLE: Mapping[str, Mapping[str, Any]] = {
    "Dense": {"recall": least(0.98), "p95_cpu_ms": most(1.3)}, "hybrid": {"p95_cpu_ms": most(4.0)},
}  # fmt: skip
STEPS = {
    "no run, functions over texts": most(1.0),
    "a run for each question, functions over texts, journal on": most(12.0),
    "run, journal on, inputs and outputs kept": most(40.0),
}
WEIGHTS = {"base": (24, 150.0), "[pdf,office,embeddings]": (45, 316.0)}


def _steps(result: Result) -> Judged:
    return {f"{name}, CPU-µs": (cost, STEPS.get(name)) for name, cost in result["spolia"].items()}


def _shape(result: Result) -> Judged:
    bounds = {
        "late_import_pairs": most(60), "circles": most(0), "duplicate_classes": most(8), "cycles": most(0),
        "names_that_say_nothing": most(800), "docstrings_without_verb": most(45), "comments_per_100_lines": least(2.5),
        "functions_of_index_and_ask": most(600), "depth_of_index_and_ask": most(25),
    }  # fmt: skip
    names = [name for name in result if isinstance(result[name], (int, float)) and name != "reached"]
    return {name: (result[name], bounds.get(name)) for name in names}


def _imports(result: Result) -> Judged:
    first = "the first import line of README"
    return {first: (result[first], most(0.15)), **{name: (result[name], None) for name in result if "spolia" in name}}


def _encodings(result: Result) -> Judged:
    return {f"exact of {name}": (share, least(0.9)) for name, share in result["exact"].items()}


def _web_pages(result: Result) -> Judged:
    limits = {"main content": least(0.91), "whole page": None}
    sets = [name for name in ("generated", "labelled") if name in result]
    return {f"{name} pages, F of {part}": (result[name][part]["F"], limits[part]) for name in sets for part in limits}


def _install(result: Result) -> Judged:
    return {
        f"{name}, {figure}": (result[name][figure], most(bound))
        for name, bounds in WEIGHTS.items()
        for figure, bound in zip(("distributions", "megabytes"), bounds, strict=True)
    }


def _bm25(result: Result) -> Judged:
    ratio = result.get("in_a_run_to_bm25s")
    return {
        **({"in a run, times bm25s": (ratio, most(1.1))} if ratio else {}),
        "segments": (result["segments"], most(1)),
        "median_cpu_ms": (result["median_cpu_ms"]["spolia"], most(0.6)),
        "best_ten_are_lucenes": (result["best_ten_are_lucenes"], least(0.99)),
    }


def _ingest(result: Result) -> Judged:
    return {
        "files_per_cpu_s": (result["files_per_cpu_s"], least(4_000)),
        "times the CPU-s of a bare script": (result["first"]["cpu_s"] / result["floor"]["cpu_s"], None),
        "unchanged, wall_s": (result["again"]["sync_wall_s"], most(1.0)),
        "unchanged, embedded": (result["again"]["embedded"], most(0)),
        "searchable_after_each_batch": (result["searchable_after_each_batch"], least(1)),
    }


def _jobs(result: Result) -> Judged:
    """What is written for each job (commands and lines), times the least of the peers."""
    figures: dict[str, Any] = {}
    for job in result["jobs"].values():
        line_counts = {
            side: sum(message[kind] for kind in ("commands", "lines")) for side, message in job.items() if side != "job"
        }
        least_of_peers = min(line_counts.pop("Haystack"), line_counts.pop("LlamaIndex"))
        figures |= {f"{job['job']}, {side}": (mine / least_of_peers, most(0.99)) for side, mine in line_counts.items()}
    return figures


def _demo(result: Result) -> Judged:
    return {"cpu_s": (result["cpu_s"], most(30.0)), "questions answered": (result["answered"], least(3))}


def _documents(result: Result) -> Judged:
    words, near = result["bm25"], result["cosine"]
    figures: dict[str, Any] = {"cosine, p95_cpu_ms": (near["spolia"]["question_cpu_ms"]["p95"], most(1.0))}
    in_order, answer_count = words["spolia"]["answers_in_order"].split(" of ")
    figures["words, answers in order"] = (int(in_order), least(int(answer_count)))
    if ratio := words.get("ratio"):
        figures["words, files_per_cpu_s, times the peer's"] = (ratio["files_per_cpu_s"], least(INDEXED))
        figures["words, a question, times as fast as the peer"] = (ratio["question_cpu_ms"], least(ASKED))
    return figures


def _pdf(result: Result) -> Judged:
    large = result["5,000 pages"]
    return {
        "mixed files, pages_per_cpu_s": (result["mixed files"]["pages_per_cpu_s"]["spolia"], least(250)),
        "papers, pages_per_cpu_s": (result["papers"]["pages_per_cpu_s"]["spolia"], least(300)),
        "5,000 pages, most_mb": (large["most_mb"], None),
    }


def _pdf_order(result: Result) -> Judged:
    return {"order": (result["order"], least(0.95))}


def _change(result: Result) -> Judged:
    figures: dict[str, Any] = {}
    for kind in ("words", "words and vectors"):
        figures[f"{kind}, p50_cpu_ms"] = (result[kind]["fresh"]["p50_cpu_ms"], most(100))
        figures[f"{kind}, least_cpu_ms"] = (result[kind]["fresh"]["least_cpu_ms"], None)
        figures[f"{kind}, only its nodes"] = (result[kind]["only_its_nodes"], least(1))
    return figures


def _first_questions(result: Result) -> Judged:
    cost = result["cpu_ms"]
    publications = result["publications of a first index of 5,000 files"]
    return {
        "first dense question after a publication, cpu_ms": (cost["first dense question"], most(5)),
        "one more text, cpu_ms": (cost["one text"], most(20)),
        "first filter of a process, cpu_ms": (cost["first filter"], most(50)),
        "words with a 1 % filter, times tantivy": (cost["1 % filter, times tantivy"], most(1.5)),
        "hybrid to the sum of its arms": (cost["hybrid to the sum of its arms"], most(1.05)),
        "publications of a first index of 5,000 files": (publications, most(4)),
    }


def _splitters(result: Result) -> Judged:
    return {f"{name}, mb_per_cpu_s": (splitter["mb_per_cpu_s"], None) for name, splitter in result["splitters"].items()}


def _embedding(result: Result) -> Judged:
    return {
        "passages_per_cpu_s": (result["passages_per_cpu_s"], least(result["reach"]["passages_per_cpu_s"])),
        "cosine to the formulas": (result["cosine_to_the_formulas"]["min"], least(result["reach"]["cosine"])),
    }


def _retrieval(result: Result) -> Judged:
    verdicts = [(row["data"], verdict) for row in result["sets"] for verdict in row["verdicts"].values()]
    holding = {data: sum(verdict["holds"] for name, verdict in verdicts if name == data) for data, _ in verdicts}
    totals = {data: sum(name == data for name, _ in verdicts) for data, _ in verdicts}
    return {
        f"{data}, measures by which the default is as good": (holding[data], least(totals[data])) for data in totals
    }


def _extract(result: Result) -> Judged:
    return {
        f"{flow}, contained in {reach['words']} words": (
            reach["contained"],
            least(reach["goal"]),
        )
        for flow, flow_result in result["flows"].items()
        for reach in flow_result["reach"]
    }


def _extract_fit(result: Result) -> Judged:
    return {
        f"{kind}, {data}, contained in {words} words": (contained, None)
        for kind in ("lexical", "embedded")
        for data, by_words in result[kind]["contained"].items()
        for words, (contained, _) in by_words.items()
    }


def _access(result: Result) -> Judged:
    return {f"{name}, times without lists": (way["ratio"], most(1.3)) for name, way in result["ways"].items()}


def _filters(result: Result) -> Judged:
    figures: dict[str, Any] = {}
    for name, row in result["cpu_ms"].items():
        if "recall" in row:
            figures[f"{name}, recall"] = (row["recall"], FILTERED["recall"])
            figures[f"{name}, p95_cpu_ms"] = (row["as it is"]["p95"], FILTERED["p95_cpu_ms"])
    return figures


def _vectors(result: Result) -> Judged:
    """Of the parts that were measured."""
    figures: dict[str, Any] = {}
    if small := result.get("small"):
        figures["2,003 compared, p95_cpu_ms"] = (small["cpu_ms"]["p95"], most(1.0))
    large = result.get("large", {"filters": {}})
    rows = {name: (row, FILTERED) for name, row in large["filters"].items()}
    for name, (row, limits) in (rows | ({"100,000": (large["graph"], NEAREST)} if rows else {})).items():
        figures[f"{name}, recall"] = (row["recall"], limits["recall"])
        figures[f"{name}, p95_cpu_ms"] = (row["cpu_ms"]["p95"], limits["p95_cpu_ms"])
    if million := result.get("million"):
        built = million["build"]
        anon = max(built["anon_mb"], million["asking_anon_mb"])
        figures["1,000,000 without a store, anon_mb"] = (anon, most(ANON_MB))
        figures["1,000,000 without a store, graphs kept when killed"] = (built["graphs_whole_when_killed"], least(1))
        figures["1,000,000 without a store, p95_cpu_ms"] = (million["without_embedding"]["cpu_ms"]["p95"], None)
    return figures


def _store(result: Result) -> Judged:
    figures: dict[str, Any] = {}
    for nodes in filter(str.isdigit, result):
        for way in ("BM25", "Dense", "hybrid"):
            for name, row in result[nodes][way].items():
                limits = FILTERED if name != "everything" else WHOLE.get(way, {})
                figures[f"{nodes}, {way}, {name}, p95_cpu_ms"] = (row["cpu_ms"]["p95"], limits.get("p95_cpu_ms"))
                if "recall" in row:
                    figures[f"{nodes}, {way}, {name}, recall"] = (row["recall"], limits.get("recall"))
    return figures


OF_A_MILLION = {"BM25": 25, "Dense": 12, "hybrid": 60, "Dense, embedding the question": 25}
"""CPU-ms of a question to 1,000,000 nodes with 384 numbers, 95th percentile."""


def _million(result: Result) -> Judged:
    row = result[max(filter(str.isdigit, result), key=int)]
    killed, end = row["found after the kill"], row["found at the end"]
    limits = OF_A_MILLION if result["numbers_in_a_vector"] == 384 else {}
    figures = {
        f"{name}, p95_cpu_ms": (row[name]["cpu_ms"]["p95"], limits.get(name) and most(limits[name]))
        for name in result["p95_ratio"]
    }
    ratios = {f"{name}, p95 to that of 100,000": (ratio, None) for name, ratio in result["p95_ratio"].items()}
    return {
        "anon_mb, indexing": (max(row[part]["anon_mb"] for part in ("killed", "resumed")), most(ANON_MB)),
        "anon_mb, asking": (row["asking_anon_mb"], most(ANON_MB)),
        "generations published when killed": (killed["generation"], least(1)),
        "nodes published when killed": (killed["nodes"], least(1)),
        "wrong after the kill": (len(killed["wrong"]), most(0)),
        "wrong at the end": (len(end["wrong"]), most(0)),
        "nodes at the end": (end["nodes"], None),
        "texts embedded again": (killed["vectors"] + row["resumed"]["texts_embedded"] - end["vectors"], most(0)),
        **figures,
        **ratios,
    }


def _flips(found: Result) -> Judged:
    names = ("unseen", "unmended", "died")
    ahead = {f"{name}, ahead": (found["ahead"][name], most(0)) for name in names}
    elsewhere = {
        f"{name}, elsewhere": (found["elsewhere"][name], most(0)) for name in ("unseen", "raw", "lost", "died")
    }
    return {**{name: (found[name], most(0)) for name in names}, **ahead, **elsewhere}


def _kills(result: Result) -> Judged:
    figures: dict[str, Any] = {}
    for name, store in result["stores"].items():
        figures[f"{name}, killed"] = (store["killed"], least(300))
        figures[f"{name}, wrong"] = (store["wrong"], most(0))
    return figures


def _concurrent_sync(result: Result) -> Judged:
    return {
        "revoked, most_s": (result["revoked"]["most_s"], most(1.0)),
        "removed, most_s": (result["removed"]["most_s"], most(1.0)),
        "p50_s": (result["p50_s"], None),
        "lost": (result["lost"], most(0)),
        "back": (result["back"], most(0)),
        "wrong": (len(result["wrong"]), most(0)),
    }


def _measures(result: Result) -> Judged:
    return {"12 measures of 1,000 rankings, CPU-s": (result["retrieval"]["spolia"], most(0.5))}


def _score_rows(result: Result) -> Judged:
    limits = {"from the file": most(18)}
    return {f"{name}, CPU-µs a row": (cost, limits.get(name)) for name, cost in result["CPU-µs a row"].items()}


def _aragog(result: Result) -> Judged:
    scores = {name: objective["score"]["mean"] for name, objective in result["objectives"].items()}
    return {f"{name} of the chosen flow": (score, None) for name, score in scores.items()}


def _autorag_trial(result: Result) -> Judged:
    runs = result["runs"]
    repeated = runs["again"]
    return {
        "trial, CPU-s": (runs["trial"]["CPU-s"], most(2.5)),
        "trial, peak MiB": (runs["trial"]["peak, MiB"], most(250)),
        "again, CPU-s": (repeated["CPU-s"], most(0.5)),
        "again, CPU-µs a score": (repeated["CPU-µs a score"], most(18)),
        "again, scores computed, calls and texts embedded": (
            repeated["scores computed"] + repeated["calls of models"] + repeated["texts embedded"],
            most(0),
        ),
        "opened again, CPU-s": (runs["opened again"]["CPU-s"], None),
        "another last step, CPU-s": (runs["another last step"]["CPU-s"], None),
        "another last step, texts embedded": (runs["another last step"]["texts embedded"], most(1)),
    }


def _large(result: Result) -> Judged:
    small, large = result["tables"]
    wrong = sum(len(table["failed"]) + 3 - table["rows found of 3"] for table in result["tables"])
    return {
        "rows not found, and failures": (wrong, most(0)),
        "anon_mb, times that of a table of a tenth": (large["anon_mb"] / small["anon_mb"], most(2.0)),
        "anon_mb": (large["anon_mb"], None),
        "anon_mb of a worker": (large["anon_mb of a worker"], None),
    }


def _experiments(result: Result) -> Judged:
    """Judge the parts that were measured."""
    claims = result.get("percent of experiments that claim a difference where there is none", {})
    figures: dict[str, Any] = {f"false claims, {name}, percent": (share, None) for name, share in claims.items()}
    kinds = result.get("percent of 95 % intervals that hold the true number", {}).get("expected", {}).values()
    if coverages := [share for kind in kinds for shares in kind.values() for share in shares.values()]:
        figures |= {"coverage, least": (min(coverages), least(93.0)), "coverage, most": (max(coverages), most(97.0))}
    if cpu_s := result.get("CPU seconds"):
        loop = "an experiment, times a plain loop"
        asked_before = "100 questions, 2 flows, 7 measures, asked before"
        figures["20 intervals, cpu_s"] = (cpu_s["20 intervals"], most(2.0))
        figures[loop] = (result["CPU"][loop], most(1.5))
        figures[f"{asked_before}, cpu_s"] = (cpu_s[asked_before], most(0.5))
    return figures


def _fusion(result: Result) -> Judged:
    figures: dict[str, Any] = {
        f"{name}, cpu_ms": (cost, most(1.0 if name == "rrf" else 3.0)) for name, cost in result["cpu_ms"].items()
    }
    figures["top 50 by marginal relevance, cpu_ms"] = (result["mmr_cpu_ms"]["by stored vectors"], most(15.0))
    figures["top 50 by marginal relevance of words, cpu_ms"] = (result["mmr_cpu_ms"]["by words"], None)
    return figures | {"279 settings of 100 questions, cpu_s": (result["sweep"]["cpu_s"], most(0.2))}


def _model_client(result: Result) -> Judged:
    figures: dict[str, Any] = {"1 flow, cpu_ms_per_call": (result["flows"]["1"]["cpu_ms_per_call"], None)}
    for flows, share in (("50", 0.95), ("200", 0.85)):
        figures[f"{flows} flows, share_of_ideal"] = (result["flows"][flows]["share_of_ideal"], least(share))
        figures[f"{flows} flows, cpu_ms_per_call"] = (result["flows"][flows]["cpu_ms_per_call"], most(0.5))
    return figures


def _workers(result: Result) -> Judged:
    return {
        "reading, times as fast with two": (result["reading"]["ratio"], least(1.7)),
        "sync, times as fast with two": (result["sync"]["ratio"], None),
    }


def _fuzz(result: Result) -> Judged:
    return {
        "inputs": (result["inputs"], None),
        "faults": (sum(result["faults"].values()), most(0)),
        "longest_s": (result["longest_s"], most(result["limits"]["seconds"])),
    }


def _flows(result: Result) -> Judged:
    recall = result["calibration"]["R@5 on the world"]
    words = 100 * recall["bm25"]["all"]["mean"]
    figures: dict[str, Any] = {
        "cpu_minutes": (result["cpu_minutes"], most(60)),
        "world, BM25's R@5, at least": (words, least(45)),
        "world, BM25's R@5, at most": (words, most(75)),
    }
    if "dense" in recall:
        difference = 100 * (recall["dense"]["paraphrase"]["mean"] - recall["bm25"]["paraphrase"]["mean"])
        figures["world, dense above BM25 on paraphrases, points"] = (difference, least(0.1))
    for data, taus in result["calibration"]["Kendall's tau, EM on the world against"].items():
        bound = least(0.6) if data in ("musique", "2wikimultihopqa") else None
        figures |= {f"tau, world and {data}, {name}": (tau, bound) for name, tau in taus.items()}
    for row in result["corag that stops"]:
        if row["profile"] == "ideal":
            label = f"{row['data']}, {row['retriever']}"
            figures[f"corag-oracle, share of tokens, {label}"] = (row["share"], None)
    return figures


def _corag(result: Result) -> Judged:
    limits = {"journal off": most(5.0)}
    return {f"{way}, median cpu_ms": (times["median"], limits.get(way)) for way, times in result["cpu_ms"].items()}


def _world(result: Result) -> Judged:
    return {"documents": (result["documents"], least(100_000)), "cpu_s": (result["cpu_s"], most(60.0))}


def _strategies(result: Result) -> Judged:
    """Of the parts that were played."""
    figures: dict[str, Any] = {}
    if cold := result.get("cold"):
        figures["floor of the regret"] = (cold["floor"], None)
        for share, bound in ((0.02, 1.0), (0.03, None), (0.05, 0.6)):
            neighbour = next(
                neighbour for neighbour in cold["curves"]["neighbours"] if abs(neighbour["budget"] - share) < 1e-9
            )
            figures[f"regret at {share:.0%} of the rows"] = (neighbour["regret"], most(bound) if bound else None)
            if share == 0.02 and neighbour["calls"] is not None:
                figures["share of the grid's reader calls at 2%"] = (neighbour["calls"], most(0.1))
        rivals = cold["spend for equal regret"]["0.6"]
        best = min(rivals.values(), key=lambda one: one["rival"] or float("inf"))
        for name, neighbour in (("the best rival's", best), ("that of halving a random third", rivals["third"])):
            if neighbour["ratio"] is not None:
                figures[f"spend at a regret of 0.6, times {name}"] = (neighbour["ratio"], most(0.65))
                if neighbour["high"] is not None:
                    figures[f"spend at a regret of 0.6, times {name}, upper end"] = (neighbour["high"], most(1.0))
    if answers := result.get("answers"):
        figures["simulated answers, floor of the regret"] = (answers["floor"], None)
        for row in answers["curves"]["neighbours"]:
            if row["budget"] in (0.02, 0.05):
                figures[f"simulated answers, regret at {row['budget']:.0%} of the rows"] = (row["regret"], None)
    for name, neighbour in result.get("warm", {}).items():
        if (ratio := neighbour["warm against the best cold rival"]["ratio"]) is not None:
            figures[f"warm, {name}, spend at a regret of 1, times the best cold rival's"] = (ratio, most(0.5))
    if pair := result.get("pair"):
        figures["planted pair, found in 20 studies"] = (pair["neighbours"], least(18))
    for questions, bound in (("500", 0.85), ("1000", 0.65)):
        if neighbour := result.get("prove", {}).get(questions):
            figures[f"prove, true best dropped, {questions} questions"] = (neighbour["true best dropped"], most(0.05))
            figures[f"prove, share of the grid, {questions} questions"] = (neighbour["share of the grid"], most(bound))
    for name, neighbour in result.get("intervals", {}).items():
        figures[f"interval covers, {name}"] = (neighbour["covers"], Limit(least=0.93, most=0.97))
    return figures


def _grid(result: Result) -> Judged:
    return {
        "the whole grid, CPU-ms a row": (result["ms_a_row"], most(0.1)),
        "the whole grid, CPU-ms a row once begun": (result["ms_a_row_once_begun"], None),
        "the same again, CPU-s": (result["again_cpu_s"], None),
    }


def _server(result: Result) -> Judged:
    costs, stream, memory = result["cpu_ms of a request"], result["cpu_ms of a stream"], result["megabytes"]
    figures: dict[str, Any] = {
        "a request beyond the flow, CPU-ms": (costs["bare"], most(0.5)),
        "with key, journal and cache, CPU-ms": (costs["with journal"], most(1.0)),
        "streams lost or mixed up": (result["lost or mixed up"], most(0)),
        "first word after the model's, ms p95": (result["first word after the model's, ms"]["p95"], most(30)),
        "a stream beyond the flow, CPU-ms": (stream["beyond the flow"], most(1.5)),
        "MB above warm idle": (memory["most"] - memory["warm idle"], most(100)),
        "work stopped after a client left, ms": (result["work stopped after, ms"], most(100)),
    }
    if peer := costs.get("Hayhooks"):
        figures["a request, times Hayhooks' empty wrapper"] = (costs["bare"] / peer, most(0.5))
    if long := result.get("long row"):
        figures["lost or mixed up of 10,000 streams"] = (long["lost or mixed up"], most(0))
        figures["MB that 9,000 more streams add"] = (long["MB late"] - long["MB early"], most(10))
    return figures


def _answers(result: Result) -> Judged:
    costs = result["cpu_ms"]
    return {
        "an answer over HTTP, times its flow": (costs["served"] / costs["bare"], most(1.3)),
        "an answer over HTTP, times its flow with a record": (costs["served"] / costs["recorded"], None),
    }


def _documents_http(result: Result) -> Judged:
    return {
        "one file over HTTP until searchable, s": (result["one file until searchable, s"]["p50"], most(0.2)),
        "files a second over HTTP, in forms": (result["forms"]["per_s"], least(1_000)),
        "files a second over HTTP, one a request": (result["one file a request"]["per_s"], None),
    }


RANKER = {
    "musique": {"own": 71.0, "all@10": 60.0, "others": 64.0, "merged": 64.0},
    "hotpotqa": {"own": 95.0, "all@10": 94.0, "others": 92.0, "merged": 93.0},
    "2wikimultihopqa": {"own": 97.5, "all@10": 97.0, "others": 94.0, "merged": 97.0},
}


def _ranker(result: Result) -> Judged:
    figures: dict[str, tuple[float, Limit | None]] = {}
    for name, to_be in RANKER.items():
        own = result["own_pools"][name]
        figures[f"{name}, own questions, R@5"] = (own["own questions"]["R@5"]["mean"], least(to_be["own"]))
        figures[f"{name}, own questions, all gold @10"] = (own["own questions"]["all@10"], least(to_be["all@10"]))
        figures[f"{name}, other sets, R@5"] = (own["other sets"]["R@5"]["mean"], least(to_be["others"]))
        merged = result["merged_pool"][name]["own questions"]["R@5"]["mean"]
        figures[f"{name}, merged pool, R@5"] = (merged, least(to_be["merged"]))
        figures[f"{name}, random gold, R@5"] = (own["random gold"]["R@5"]["mean"], most(30))
    cost = result["cost"]
    figures["CPU-ms of a question beyond hybrid, 5,000 passages"] = (cost["question"]["musique"]["cpu_ms"], most(15))
    figures["training, CPU-s"] = (cost["training_cpu_s"], most(10))
    figures["size, kB"] = (cost["bytes"] / 1000, most(20))
    figures["single hop, R@1 against hybrid"] = (result["single_hop"]["difference"]["mean"], least(-1))
    return figures


def _reader(result: Result) -> Judged:
    scores, training = result["scores"], result["training"]
    return {
        "F1 over all paragraphs": (100 * scores["SpanReader"]["F1"]["mean"], least(60.0)),
        "EM over all paragraphs": (100 * scores["SpanReader"]["EM"]["mean"], None),
        "F1 on the gold paragraph": (100 * scores["gold paragraph"]["F1"]["mean"], None),
        "F1 of whole sentences": (100 * scores["Extract"]["F1"]["mean"], None),
        "training, CPU-min": (training["cost"]["steps_cpu_s"] / 60, most(30.0)),
        "a question, CPU-ms": (result["cpu_ms_a_question"], most(200.0)),
    }


def _encoders(result: Result) -> Judged:
    figures: dict[str, tuple[float, Limit | None]] = {}
    for name, part in result["parts"].items():
        score = part["score"]
        figures[f"{name}: {score['measure']} over the untrained, points"] = (
            100 * score["difference"]["mean"],
            None,
        )
        figures[f"{name}: CPU-s of a training"] = (sum(part["cost"].values()), None)
    return figures


def _language_model(result: Result) -> Judged:
    return {
        f"{kind}: ln P of a token over the untuned": (row["gain"]["mean"], least(0.0))
        for kind, row in result["kinds"].items()
    }


SAVED = {"musique": 28.0, "2wikimultihopqa": 18.0}
"""Percent of the tokens, where EM falls by one point at most."""


def _sufficiency(result: Result) -> Judged:
    figures: dict[str, tuple[float, Limit | None]] = {}
    for name, row in result["sets"].items():
        for size, policy in row["policies"].items():
            is_judged = size == "features, 24 units"
            figures[f"{name}, {size}: tokens saved, %"] = (
                policy["tokens_saved"],
                least(SAVED[name]) if is_judged else None,
            )
            figures[f"{name}, {size}: change of EM"] = (policy["EM_change"][0], least(-1.0) if is_judged else None)
    return figures


def _classifiers(result: Result) -> Judged:
    figures: dict[str, tuple[float, Limit | None]] = {}
    for name, part in result["parts"].items():
        for size, reported_size in part["sizes"].items():
            gain = reported_size["accuracy"][1] - reported_size["most_frequent_label"]
            gain = reported_size.get("over_most_frequent_label", [0, gain])[
                1
            ]  # question by question, where it was measured
            figures[f"{name}, {size}: accuracy, at least, over the most frequent label"] = (gain, least(0.0))
            figures[f"{name}, {size}: change of EM"] = (part["flow"][f"trained, {size}"]["EM_change"][0], None)
            figures[f"{name}, {size}: tokens"] = (part["flow"][f"trained, {size}"]["tokens"], None)
    return figures


def _job_queue(result: Result) -> Judged:
    figures: dict[str, tuple[float, Limit | None]] = {}
    for name, run in result["runs"].items():
        figures[f"{name}: completed twice"] = (run["completed twice"], most(0))
        figures[f"{name}: lost"] = (run["lost"], most(0))
        if not run["kills"]:
            figures[f"{name}: jobs a second"] = (
                run["done per s"],
                least(5_000 if "PostgreSQL" in name else 2_500),
            )
    return figures


def _ranker_growth(result: Result) -> Judged:
    return {
        f"CPU-ms of a question beyond hybrid, {size['passages']:,} passages": (size["question_cpu_ms"], None)
        for size in result["sizes"]
    }


def _term_weights(result: Result) -> Judged:
    figures: dict[str, tuple[float, Limit | None]] = {}
    for row in result["sets"]:
        figures[f"{row['data']}: nDCG@10 over BM25, points"] = (
            100 * row["nDCG@10"]["difference"]["mean"],
            least(0.0),
        )
        figures[f"{row['data']}: R@5 over BM25, points"] = (100 * row["R@5"]["difference"]["mean"], None)
        figures[f"{row['data']}: CPU-s of a training"] = (row["cpu_s"], None)
    return figures


JUDGES: Mapping[str, Callable[[Result], Judged]] = {
    "ranker": _ranker,
    "ranker_growth": _ranker_growth,
    "term_weights": _term_weights,
    "shape": _shape,
    "steps": _steps,
    "imports": _imports,
    "install": _install,
    "bm25": _bm25,
    "encodings": _encodings,
    "web_pages": _web_pages,
    "ingest": _ingest,
    "jobs": _jobs,
    "demo": _demo,
    "documents": _documents,
    "pdf": _pdf,
    "pdf_order": _pdf_order,
    "change": _change,
    "first_questions": _first_questions,
    "splitters": _splitters,
    "embedding": _embedding,
    "retrieval": _retrieval,
    "flows": _flows,
    "extract": _extract,
    "extract_fit": _extract_fit,
    "access": _access,
    "filters": _filters,
    "vectors": _vectors,
    "store": _store,
    "million": _million,
    "kills": _kills,
    "flips": _flips,
    "concurrent_sync": _concurrent_sync,
    "measures": _measures,
    "score_rows": _score_rows,
    "aragog": _aragog,
    "autorag_trial": _autorag_trial,
    "experiments": _experiments,
    "fusion": _fusion,
    "fuzz": _fuzz,
    "large": _large,
    "model_client": _model_client,
    "workers": _workers,
    "corag": _corag,
    "world": _world,
    "strategies": _strategies,
    "strategies_world": _strategies,
    "grid": _grid,
    "server": _server,
    "answers": _answers,
    "documents_http": _documents_http,
    "job_queue": _job_queue,
    "reader": _reader,
    "encoders": _encoders,
    "language_model": _language_model,
    "sufficiency": _sufficiency,
    "classifiers": _classifiers,
}
"""By the name of the result."""
