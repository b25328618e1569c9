"""Source code: the document is the file, its language a field, its definitions are headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.source_structure import Structure, read_structured
from spolia.indexing.readers.text import decode
from spolia.types import Heading, Value

LANGUAGES = {
    ".py": "python", ".pyi": "python", ".pyw": "python", ".js": "javascript", ".mjs": "javascript",
    ".cjs": "javascript", ".jsx": "javascript", ".ts": "typescript", ".tsx": "typescript", ".java": "java",
    ".kt": "kotlin", ".kts": "kotlin", ".scala": "scala", ".groovy": "groovy", ".c": "c", ".h": "c", ".cc": "c++",
    ".cpp": "c++", ".cxx": "c++", ".hpp": "c++", ".hh": "c++", ".cs": "c#", ".go": "go", ".rs": "rust",
    ".swift": "swift", ".m": "objective-c", ".rb": "ruby", ".php": "php", ".pl": "perl", ".pm": "perl", ".r": "r",
    ".jl": "julia", ".lua": "lua", ".sh": "shell", ".bash": "shell", ".zsh": "shell", ".ps1": "powershell",
    ".sql": "sql", ".hs": "haskell", ".ml": "ocaml", ".ex": "elixir", ".exs": "elixir", ".erl": "erlang",
    ".clj": "clojure", ".lisp": "lisp", ".el": "lisp", ".dart": "dart", ".zig": "zig", ".nim": "nim", ".f90": "fortran",
    ".f": "fortran", ".pas": "pascal", ".vb": "visual basic", ".asm": "assembly", ".s": "assembly", ".css": "css",
    ".scss": "css", ".less": "css", ".vue": "vue", ".svelte": "svelte", ".proto": "protobuf", ".graphql": "graphql",
    ".tf": "terraform", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".ini": "ini", ".cfg": "ini",
    ".cmake": "cmake",
}  # fmt: skip
"""Of files, by suffix."""
_WORDS = (
    "class|def|func|function|fn|fun|sub|struct|enum|interface|trait|impl|module|namespace|protocol|extension|type|object|"
    "record|procedure|package|defmodule|defp?|message|service"
)
_DEFINITION = re.compile(
    r"^([ \t]{0,40})((?:(?:export|default|public|private|protected|internal|static|final|abstract|async|override|open|"
    r"sealed|data|inline|unsafe|virtual|partial|pub(?:\([a-z]{1,10}\))?)[ \t]{1,8}){0,6}"
    rf"(?:{_WORDS})[ \t]{{1,8}}[\w$.:<>*&\[\]]{{1,200}})",
    re.MULTILINE,
)
_LITERAL = frozenset(["yaml", "toml", "ini", "css"])
"""Languages without definitions."""


@dataclass(frozen=True)
class CodeReader(Value):
    """Reader of source code. A line that defines something by a keyword (`class Arch`, `pub fn span`) is a heading.

    >>> text = b"class Arch:\\n    def span(self):\\n        return 1\\n"
    >>> document = CodeReader().read(Blob("arch.py", text)).document
    >>> [(heading.level, heading.text) for heading in document.headings], document.meta
    ([(1, 'class Arch'), (2, 'def span')], (('programming_language', 'python'),))
    """

    name = "code"
    version = 1
    media_type = "text/x-source-code"
    suffixes = tuple(LANGUAGES)

    def read(self, blob: Blob, /) -> Reading:
        language = LANGUAGES.get(blob.uri[blob.uri.rfind(".") :].lower(), "")

        def find_structure(text: str) -> Structure:
            headings = () if language in _LITERAL else _definitions(text)
            return Structure(headings=headings, meta=fields(programming_language=language))

        return read_structured(decode(blob.data, blob.uri), self, blob, find_structure)


def _definitions(text: str) -> Iterator[Heading]:
    """Yield a heading for each definition. Levels follow the indentation, from 1, without gaps."""
    depths: list[int] = []
    for line in _DEFINITION.finditer(text):
        depth = len(line[1])
        while depths and depths[-1] >= depth:
            depths.pop()
        depths.append(depth)
        yield Heading(line.start(2), len(depths), " ".join(line[2].rstrip(":<([").split()))
