"""The page of the table of flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HEAD = """# Published flows with a simulated reader

`"simulated": true, "planner": "gold"`. No language model was asked. The reader knows the gold of each question, and
says only what the prompt that it is sent states. Scores tell of retrieval and orchestration, never of language. They do
not compare with published scores or with those of a language model. The reader plans with gold sub-questions, so flows
that ask sub-questions look better than they are beside flows that rewrite the question (`rrr`, `hyde`, `step-back`,
`advanced`), of which nothing is claimed here. The noisy reader drifts from its plan in three of ten sub-questions.

Flows of one source search the whole corpus. Flows of two sources (marked ½) search two halves, `local` and `web`.
EM, F1 and all-gold recall are times 100, with 95 % intervals. Tokens (ATC: of a question, sent and written) are words.
Strict: a fact counts as stated only in the words of the gold passage. Lenient: also by a passage that holds the answer
and half of the words of such a sentence. What IRCoT and FLARE write is strict in both, since they copy sentences.
"""
HALVES = "½"
ITERATIVE = """\
Flows that ask or think in steps (`ircot`, `flare`, `auto-rag`, `planrag`, `corag`) beat single-shot retrieval where
an interval lies above 0. `iter-retgen` does not. It adds its last answer to the query, and this reader abstains while a
hop is missing, so nothing is added: a language model that names the bridge in a wrong answer would gain here. The gold
planner makes the lead of flows with sub-questions an upper bound."""
STOPPING = """\
58 to 70 % was expected, and 44 to 73 % is published with a trained classifier. The oracle stops after the pair that
resolves the last hop, so the share follows the depth of the questions, as the second table shows: a chain that never
comes to suffice takes all of L = 6, and one that does takes its hops. A set of mostly two hops lies below 58 %; deeper
questions, failed retrieval and drift raise the share. The tokens of the judge are apart, as a classifier's would be;
`corag-oracle` asks the model itself, which the next column counts. The noisy reader judges one chain in ten wrongly:
a chain that ends too early costs its answer."""
EXPOSURE = """\
The local half suffices where its five best passages for each gold sub-question state the answer. The noisy reader
overlooks one passage in ten and drifts from its plan, so that it goes on to the web there, too. Flows that join both
sources (`prefrag-no-preference`, `react-concat`) show the web in every question. With the simulated reader, which names
the second source only after the first has failed, `prefrag-prompt` and `react` keep to it as well: that says nothing of
how a language model would obey such a prompt."""
READINGS = """\
Few passages state a fact in other words, so the readings hardly differ. CRAG scores a little less with the lenient one:
a distractor that passes for a statement is graded relevant, and nothing is corrected. FLARE sees such a passage, but
copies no sentence of it."""
BOTH = """\
A world in which every document exists twice, with other facts in the second source. The reader believes what it is
shown, so its answers tell whose passages PrefRAG let in. Questions of at most four hops, by BM25."""


def page(result: Mapping[str, Any]) -> str:
    """The page of a result, as the JSON file has it."""
    lines = [HEAD, _run(result), "## Calibration of the world", "", *_calibration(result["calibration"])]
    lines += ["", "## Do iterative flows beat single-shot retrieval?", "", *_deeper(result)]
    lines += ["", "## What does CoRAG save that stops where its chain suffices?", "", *_stopping(result)]
    lines += ["", "By hops of the question, all sets together, and by whether the chain came to suffice:", ""]
    lines += _stopping_by_hops(result)
    lines += ["", "## Does PrefRAG keep the web out?", "", *_exposure(result)]
    lines += [
        "",
        "## Does PrefRAG follow its preference where sources contradict each other?",
        "",
        *_contradicting_sources(result),
    ]
    lines += ["", "## Does it matter how a fact is stated?", "", *_readings(result["table"])]
    for data in dict.fromkeys(row["data"] for row in result["table"]):
        lines += ["", f"## {data}", "", *_set([row for row in result["table"] if row["data"] == data])]
    return "\n".join([*lines, ""])


def _run(result: Mapping[str, Any]) -> str:
    text = "; ".join(
        f"{data} {', '.join(f'{count} ({profile})' for profile, count in counts.items())}"
        for data, counts in result["questions"].items()
    )
    few = result["of flows with many calls"]
    scored = ", ".join(f"`{name}`" for name in result["with a simulated scorer"])
    return (
        f"Questions of each set and reader: {text}; {few['questions']} for {', '.join(few['flows'])}. The ideal "
        f"reader is asked with every retriever, the lenient and the noisy one "
        f"({result['seeds of the noisy reader']} seeds) with the last. All of it took {result['cpu_minutes']} "
        f"CPU-minutes. HotpotQA has no decompositions, so "
        f"its hops are made of its gold passages. The trained scorer of {scored} is simulated as well: it knows the "
        "gold. PubMedQA stands for BioASQ; its answers (yes, no, maybe) are right where the gold abstract is shown. "
        "Bamboogle has no corpus: `closed-book` alone is asked.\n"
    )


def _calibration(calibration: Mapping[str, Any]) -> Iterable[str]:
    recall = calibration["R@5 on the world"]
    kinds = list(next(iter(recall.values())))
    yield from _table(
        ["R@5", *kinds], [[name, *(_score(order[kind]) for kind in kinds)] for name, order in recall.items()]
    )
    yield ""
    orders = calibration["Kendall's tau, EM on the world against"]
    if not orders:
        return
    names = list(dict.fromkeys(name for order in orders.values() for name in order))
    yield "Kendall's tau between the order of flows by EM on the world and on a public set; 0.6 is the aim:"
    yield ""
    yield from _table(
        ["set", *names],
        [[data, *(f"{order[name]:.2f}" if name in order else "" for name in names)] for data, order in orders.items()],
    )


def _deeper(result: Mapping[str, Any]) -> Iterable[str]:
    all_rows = result["iterative against single-shot"]
    better = [row for row in all_rows if row["more EM"]["low"] > 0]
    worse = [row for row in all_rows if row["more EM"]["high"] < 0]
    yield (
        f"EM above `naive`, paired, all sets together: {len(better)} of {len(all_rows)} differences (flow, hops, "
        f"retriever, reader) are shown to be above 0, {len(worse)} below. In brackets the EM of `naive`."
    )
    last = all_rows[-1]["retriever"] if all_rows else ""
    for profile in ("ideal", "noisy"):
        last_rows = [row for row in all_rows if (row["retriever"], row["profile"]) == (last, profile)]
        hops = sorted({row["hops"] for row in last_rows})
        rows_by_depth = {(row["flow"], row["hops"]): row for row in last_rows}
        rows = []
        for flow in dict.fromkeys(row["flow"] for row in last_rows):
            cells = [rows_by_depth.get((flow, count)) for count in hops]
            rows.append(
                [
                    flow,
                    *(
                        f"{_format_gain(row['more EM'])} ({100 * row['single-shot']:.0f})" if row else ""
                        for row in cells
                    ),
                ]
            )
        sizes = [next(row["more EM"]["n"] for row in last_rows if row["hops"] == count) for count in hops]
        yield ""
        yield f"The {profile} reader, {last}:"
        yield ""
        heads = [f"{count} hops, n = {size}" for count, size in zip(hops, sizes, strict=True)]
        yield from _table(["flow", *heads], rows)
    yield ""
    yield ITERATIVE


def _stopping(result: Mapping[str, Any]) -> Iterable[str]:
    rows = [
        [row["data"], row["retriever"], row["profile"], f"{row['L = 6']:,}", f"{100 * row['share']:.0f} %",
         f"{100 * row['share with the judge']:.0f} %", _format_gain(row["more EM"])]
        for row in result["corag that stops"]
    ]  # fmt: skip
    heads = ["set", "retriever", "reader", "tokens of L = 6", "share", "with the judge's tokens", "EM more than L = 6"]
    yield from _table(heads, rows)
    shares = [100 * row["share"] for row in result["corag that stops"] if row["profile"] == "ideal"]
    yield ""
    if shares:
        yield f"The ideal reader spends {min(shares):.0f} to {max(shares):.0f} % of the tokens of L = 6."
    for profile in ("ideal", "noisy"):
        lost = [f"{row['data']} ({row['retriever']}, {_format_gain(row['more EM'])})"
                for row in result["corag that stops"]
                if row["profile"] == profile and row["more EM"]["high"] < 0]  # fmt: skip
        yield f"A loss of EM is shown with the {profile} reader on: {', '.join(lost) or 'no set'}."
    yield STOPPING


def _stopping_by_hops(result: Mapping[str, Any]) -> Iterable[str]:
    rows = [
        [row["retriever"], row["profile"], str(row["hops"]), "yes" if row["chain suffices"] else "no", str(row["n"]),
         f"{100 * row['share']:.0f} %"]
        for row in result["corag that stops, by hops"] if row["profile"] in ("ideal", "noisy")
    ]  # fmt: skip
    yield from _table(["retriever", "reader", "hops", "chain suffices", "n", "share of the tokens of L = 6"], rows)


def _exposure(result: Mapping[str, Any]) -> Iterable[str]:
    all_rows = result["prefrag and the web"]
    last = all_rows[-1]["retriever"] if all_rows else ""
    rows = [
        [row["data"], row["flow"], row["profile"], "yes" if row["local suffices"] else "no", str(row["n"]),
         f"{row['questions with web shown']} of {row['n']}", f"{row['searches, web']:.2f}", f"{row['shown, web']:.2f}"]
        for row in all_rows if row["retriever"] == last and row["profile"] != "lenient"
    ]  # fmt: skip
    heads = ["set", "flow", "reader", "local suffices", "n", "web shown", "web searches", "web passages shown"]
    for profile in ("ideal", "noisy"):
        enough = [row for row in all_rows if row["flow"] == "prefrag" and row["local suffices"]]
        enough = [row for row in enough if row["profile"] == profile]
        shown_count, asked_count = (sum(row[column] for row in enough) for column in ("questions with web shown", "n"))
        yield (
            f"Where the local half suffices, PrefRAG showed the web in {shown_count} of {asked_count} questions with "
            f"the {profile} reader, all retrievers together."
        )
    yield ""
    yield from _table(heads, rows)
    yield ""
    yield EXPOSURE


def _contradicting_sources(result: Mapping[str, Any]) -> Iterable[str]:
    rows = [
        [row["preferred"], str(row["n"]), _score(row["answers of local"]), _score(row["answers of web"]),
         f"{row['shown, local']:.1f}", f"{row['shown, web']:.1f}"]
        for row in result["prefrag and contradicting sources"]
    ]  # fmt: skip
    heads = ["preferred", "n", "EM, local facts", "EM, web facts", "local passages shown", "web passages shown"]
    yield from _table(heads, rows)
    yield ""
    yield BOTH


def _readings(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """How much more EM the lenient reading gives than the strict one."""
    scores = {(row["data"], row["flow"], row["retriever"], row["profile"]): row["sim_EM"] for row in rows}
    more: dict[str, list[tuple[float, str]]] = {}
    for (data, flow, retriever, profile), em in scores.items():
        strict = scores.get((data, flow, retriever, "ideal"))
        if profile == "lenient" and strict and strict["n"] == em["n"]:
            more.setdefault(data, []).append((em["mean"] - strict["mean"], flow))
    yield "EM of the lenient reading above the strict one, over all flows:"
    yield ""
    table = [
        [
            data,
            f"{100 * sum(gain for gain, _ in gains) / len(gains):+.1f}",
            f"{100 * max(gains)[0]:+.1f} ({max(gains)[1]})",
        ]
        for data, gains in more.items()
    ]
    yield from _table(["set", "mean", "most"], table)
    yield ""
    yield READINGS


def _set(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    rows_by_flow = {(row["flow"], row["retriever"], row["profile"]): row for row in rows}
    names = list(dict.fromkeys(row["retriever"] for row in rows if row["profile"] == "ideal"))
    last = names[-1]
    heads = ["flow", *(f"EM, {name}" for name in names), f"EM, {last}, lenient", f"EM, {last}, noisy",
             f"F1, {last}", f"all gold, {last}",
             "calls", "ATC", "searches", "used", "shown", "stops"]  # fmt: skip
    table = []
    for flow in dict.fromkeys(row["flow"] for row in rows):
        ideal_rows = {name: rows_by_flow.get((flow, name, "ideal")) for name in names}
        ideal, noisy, lenient = (rows_by_flow.get((flow, last, profile)) for profile in ("ideal", "noisy", "lenient"))
        if ideal is None:
            continue
        halves = (
            "shown, local" in ideal or "shown, web" in ideal or "searches, web" in ideal or "searches, local" in ideal
        )
        table.append([
            flow + (f" {HALVES}" if halves else ""),
            *(_score(row["sim_EM"]) if row else "" for row in (*ideal_rows.values(), lenient, noisy)),
            _score(ideal["sim_F1"]), _score(ideal["sim_all gold"]), f"{ideal['calls']:.1f}", f"{ideal['tokens']:,.0f}",
            *(_sources(ideal, figure) for figure in ("searches", "used", "shown")),
            ", ".join(f"{name or 'none'} {100 * share:.0f} %" for name, share in ideal["stops"].items()),
        ])  # fmt: skip
    yield f"Costs and stops are those of {last} and the ideal reader; of two sources: local + web."
    yield ""
    yield from _table(heads, table)


def _sources(row: Mapping[str, Any], figure: str) -> str:
    local, web, both_sources = (row.get(f"{figure}, {name}", 0.0) for name in ("local", "web", "all"))
    return f"{local:.1f} + {web:.1f}" if local or web else f"{both_sources:.1f}"


def _score(interval: Mapping[str, float]) -> str:
    return f"{100 * interval['mean']:.0f} [{100 * interval['low']:.0f}, {100 * interval['high']:.0f}]"


def _format_gain(gain: Mapping[str, float]) -> str:
    return f"{100 * gain['mean']:+.0f} [{100 * gain['low']:.0f}, {100 * gain['high']:.0f}]"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
