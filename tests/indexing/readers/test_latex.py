"""LaTeX: the text is the source; headings and cells lose nothing that a reader of the page would see."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.indexing.readers.markup.latex import LatexReader, plain_text
from spolia.indexing.readers.reader import Blob, Reading
from tests.cases import check_each

PREAMBLE = r"""\documentclass{article}
\newcommand{\acme}{ACME Corp}
\newcommand{\co}[1]{CO$_{#1}$}
\newcommand*{\named}[2][Ann]{#2 by #1}
\def\pair#1#2{#1 and #2}
\DeclareMathOperator{\rank}{rank}
\newcommand{\topic}[1]{\clearpage\subsection{#1}}
\title{The \acme{} report}
\author{Ann \and Bob}
\begin{document}
"""


def read(body: str) -> Reading:
    return LatexReader().read(Blob("a.tex", f"{PREAMBLE}{body}\n\\end{{document}}\n".encode()))


def headings(body: str) -> list[str]:
    return [heading.text for heading in read(body).document.headings]


def test_the_text_is_the_source() -> None:
    body = "\\verb|50%| and \\url{http://a.b/c%20d} \\acme{}.\n\\iffalse\nnot printed\n\\fi\n% a remark\nEnd."
    assert read(body).document.text == f"{PREAMBLE}{body}\n\\end{{document}}\n"


@check_each(
    ("written", "words"),
    [
        (r"\section{Costs of \verb|50%| and 5\% more}", "Costs of 50% and 5% more"),
        (r"\section{See \url{http://a.b/c%20d}}", "See http://a.b/c%20d"),
        (r"\section{See \href{http://a.b/c%20d}{the page}}", "See the page"),
        (r"\section{Call \lstinline[language=C]|printf(" '"%d"' r")| now}", 'Call printf("%d") now'),
        (r"\section{Call \mintinline{c}{f(x)} now}", "Call f(x) now"),
        (r"\section{At \path{/a_b%c}}", "At /a_b%c"),
        (r"\section{The \acme{} study of \co{2}}", "The ACME Corp study of CO$_{2}$"),
        (r"\section{\named{Stones}, \named[Bob]{roads}, \pair{a}{b c}}", "Stones by Ann, roads by Bob, a and b c"),
        (r"\section{On \unknown{stones} and \LaTeX}", "On \\unknown{stones} and LaTeX"),
        (r"\section{$\frac{a}{b}$ of \(x \leq y\)}", r"$\frac{a}{b}$ of \(x \leq y\)"),
        (r"\section[short [one]]{Long \textbf{and \emph{deep \texttt{x {y {z}}}}}}", "Long and deep x y z"),
        ("\\section{One % a remark \\section{no}\n  two}", "One two"),
        (r"\section{Stones \& roads\footnote{old}~\cite{a}}", "Stones & roads old"),
        (r"\section{Line one\\line two -- 10\,\% \dots}", "Line one line two -- 10 % …"),
        (r"\topic{Own command}", "Own command"),
        (r"\section{\texorpdfstring{$\alpha$ rays}{alpha rays}}", r"$\alpha$ rays"),
    ],
)
def test_a_heading_keeps_what_is_seen(written: str, words: str) -> None:
    assert headings(written) == [words]


def test_what_is_not_printed_has_no_headings() -> None:
    body = r"""
% \section{a remark}
\iffalse \section{never} \ifx\a\b \section{nor} \fi \section{nor here} \fi
\begin{comment}
\section{commented}
\end{comment}
\begin{verbatim}
50% \section{shown as it is written}
\end{verbatim}
\begin{lstlisting}[language=C]
printf("%d"); \section{code}
\end{lstlisting}
\verb|\section{v}| \lstinline|\section{l}| \path{\section} \url{a%b} \section{Seen}
\newcommand{\later}[1]{\section{#1}}
\iftrue \section{Seen too} \fi"""
    assert headings(body) == ["Seen", "Seen too"]
    assert read(body).document.title == "The ACME Corp report"


def test_the_author_s_own_command_for_headings_makes_headings_at_its_place() -> None:
    document = read("\\topic{One \\acme}\nText.\\topic{Two}").document
    assert [(heading.level, heading.text) for heading in document.headings] == [(3, "One ACME Corp"), (3, "Two")]
    assert all(document.text.startswith("\\topic{", heading.start) for heading in document.headings)


def test_cells_keep_what_is_seen() -> None:
    body = r"""\begin{tabular}{ll} \toprule a & 5\% \\ \hline
\co{2} & \url{x%20y} % a remark
\\ \verb|p & q| & \unknown \\ \bottomrule \end{tabular}"""
    (table,) = read(body).document.regions
    assert table.rows == (("a", "5%"), ("CO$_{2}$", "x%20y"), ("p & q", "\\unknown"))


def test_the_columns_of_a_table_are_told_from_its_first_cell() -> None:
    body = r"""\begin{tabular}[t]{l|p{2cm}} {\bf a} & b \\ c & d \end{tabular}
\begin{tabularx}{\linewidth}{lX} {a} & b \end{tabularx}"""
    narrow, wide = read(body).document.regions
    assert (narrow.rows, wide.rows) == ((("a", "b"), ("c", "d")), (("a", "b"),))


@pytest.mark.slow
def test_macros_that_name_themselves_and_braces_that_never_close_end() -> None:
    loops = "\\newcommand{\\a}{\\b\\b}\\newcommand{\\b}{\\a\\a}\\section{\\a}"
    assert len(headings(loops)) == 1
    for hostile in ("\\section{" * 40_000, "\\newcommand{\\x}{" * 20_000, "\\iffalse " * 40_000, "\\verb|" * 40_000):
        read(hostile)
    read("\\newcommand{\\x}[9]{" + "#1" * 500 + "}" + "\\section{\\x{" + "y" * 900 + "}}" * 50)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.text(alphabet="ab \\{}%$&~#|[]\n1", max_size=60))
def test_any_text_is_read_and_kept(text: str) -> None:
    assert LatexReader().read(Blob("a.tex", text.encode())).document.text == text
    assert "\n" not in plain_text(text)


@given(st.lists(st.sampled_from(["alpha", "beta", "5\\%", "\\own{gamma}", "\\verb|d%e|", "$x_1$"]), min_size=1))
def test_every_word_of_a_heading_is_in_it(words: list[str]) -> None:
    (heading,) = headings(f"\\section{{{' '.join(words)}}}")
    for word in words:
        expected = {"5\\%": "5%", "\\own{gamma}": "gamma", "\\verb|d%e|": "d%e"}.get(word, word)
        assert expected in heading
