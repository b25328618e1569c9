"""XML without what makes it dangerous: nothing is fetched, no entity is declared, nothing is nested without end.

The standard library's expat reads it event by event. The declaration of an entity that could grow or name a file ends
the reading; the document type that a public identifier names is not fetched; characters that are not UTF-8 are decoded
before, with the encoding that the declaration names.
"""

import re
from collections.abc import Callable
from html.entities import html5
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from spolia.errors import DocumentError, UnsafeDocument
from spolia.indexing.readers.text import Decoded, decoded, encoding_called

DEEPEST = 500
"""Elements within elements of a tree."""
_DECLARED = re.compile(rb"<\?xml[^<>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})")
_SEPARATOR = "}"
_DECLARATION = re.compile(r"(\s*(?:<!--(?:[^-]|-(?!->))*-->\s*)*)(<\?xml\s[^<>]{0,300}\?>)")


class _Refused(Exception):
    """The document does what none should."""


def characters(data: bytes, uri: str) -> Decoded:
    """The characters of an XML file, by its marks, its declaration, or a guess."""
    found = _DECLARED.search(data, 0, 500)
    return decoded(data, uri, encoding_called(found[1].decode()) if found else "")


def events(
    text: str,
    uri: str,
    start: Callable[[str, dict[str, str]], Any],
    end: Callable[[str], Any],
    words: Callable[[str], Any],
) -> None:
    """Report the parts of a document to handlers, in order. Names are `{namespace}name`, or the name alone. Raises
    DocumentError where it is damaged, or declares entities."""
    parser = expat.ParserCreate(encoding="utf-8", namespace_separator=_SEPARATOR)
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, said: start(_named(name), {_named(key): said[key] for key in said})
    parser.EndElementHandler = lambda name: end(_named(name))
    parser.CharacterDataHandler = words
    parser.EntityDeclHandler = _refuse_entity
    parser.SkippedEntityHandler = lambda name, is_parameter: None if is_parameter else words(html5.get(f"{name};", ""))
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.UseForeignDTD(True)  # an entity that nobody declares is skipped; those of HTML are known
    try:
        parser.Parse(_without_declaration(text.lstrip("\ufeff \t\r\n")).encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise DocumentError(
            f"{uri} is not readable XML: {expat.ErrorString(error.code)} in line {error.lineno}, column "
            f"{error.offset + 1}. Mend it, for example: xmllint --recover FILE"
        ) from error
    except _Refused as error:
        raise UnsafeDocument(f"{uri}: {error}") from error


def _without_declaration(text: str) -> str:
    """Blank the XML declaration. The text is decoded; it may stand below a comment, or name XML 1.1 or the encoding
    `850`, which expat refuses."""
    stated = _DECLARATION.match(text)
    return text if stated is None else stated[1] + " " * len(stated[2]) + text[stated.end() :]


def tree(data: bytes, uri: str) -> Element:
    """The tree of a small document; DocumentError as for `events`, and if elements are nested too deep.

    >>> tree(b"<a><b>One &amp; two</b></a>", "a.xml")[0].text
    'One & two'
    """
    builder = TreeBuilder()
    depth = 0

    def start(name: str, said: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise _Refused(f"its elements are nested more than {DEEPEST} deep. Save it again.")
        builder.start(name, said)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    events(characters(data, uri).text, uri, start, end, builder.data)
    return builder.close()


def _named(name: str) -> str:
    return f"{{{name}" if _SEPARATOR in name else name


_LONGEST_ENTITY = 1_000


def _refuse_entity(name: str, is_parameter: bool, value: str | None, *rest: str | None) -> None:
    """Refuse entities that could grow or name a file. Allowed are a short text without further entities, and the name
    of a picture or the like, which no text can refer to."""
    is_short = value is not None and len(value) <= _LONGEST_ENTITY and "&" not in value and "%" not in value
    notation = rest[-1]
    if not notation and (is_parameter or not is_short):
        raise _Refused(
            f"it declares the entity {name!r}, which could grow or name a file. Take the declaration out of it."
        )
