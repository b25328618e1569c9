"""XML parsing without its dangers: nothing is fetched, no entity is declared, nesting is bounded.

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
from spolia.indexing.readers.text import DecodedText, decode, python_encoding

DEEPEST = 500
"""Elements within elements of a tree."""
_ENCODING_DECLARATION = re.compile(rb"<\?xml[^<>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})")
# expat writes it between namespace and name, so only `{` is missing.
_SEPARATOR = "}"
_DECLARATION = re.compile(r"(\s*(?:<!--(?:[^-]|-(?!->))*-->\s*)*)(<\?xml\s[^<>]{0,300}\?>)")


class _UnsafeXml(Exception):
    """Content of an XML document that could do harm."""


def decode_xml(data: bytes, uri: str) -> DecodedText:
    """Decode an XML file by its byte order mark, its declaration, or a guess."""
    # A declaration stands at the beginning; the rest need not be searched.
    declaration = _ENCODING_DECLARATION.search(data, 0, 500)
    return decode(data, uri, python_encoding(declaration[1].decode()) if declaration else "")


def report_events(
    text: str,
    uri: str,
    start: Callable[[str, dict[str, str]], Any],
    end: Callable[[str], Any],
    words: Callable[[str], Any],
) -> None:
    """Report the parts of a document to handlers, in order. Names are `{namespace}name`, or the name alone. Raises
    DocumentError if it is damaged or declares entities."""
    parser = expat.ParserCreate(encoding="utf-8", namespace_separator=_SEPARATOR)
    # Without it, expat calls the handler for every line and entity.
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, attributes: start(
        _qualified_name(name), {_qualified_name(key): attributes[key] for key in attributes}
    )
    parser.EndElementHandler = lambda name: end(_qualified_name(name))
    parser.CharacterDataHandler = words
    parser.EntityDeclHandler = _refuse_entity
    parser.SkippedEntityHandler = lambda name, is_parameter: None if is_parameter else words(html5.get(f"{name};", ""))
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.UseForeignDTD(True)  # an entity that nobody declares is skipped; those of HTML are known
    try:
        # expat refuses anything before the declaration.
        parser.Parse(_blank_declaration(text.lstrip("\ufeff \t\r\n")).encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise DocumentError(
            f"{uri} is not readable XML: {expat.ErrorString(error.code)} in line {error.lineno}, column "
            f"{error.offset + 1}. Mend it, for example: xmllint --recover FILE"
        ) from error
    except _UnsafeXml as error:
        raise UnsafeDocument(f"{uri}: {error}") from error


def _blank_declaration(text: str) -> str:
    """Blank the XML declaration. The text is decoded; it may stand below a comment, or name XML 1.1 or the encoding
    `850`, which expat refuses."""
    declaration = _DECLARATION.match(text)
    return text if declaration is None else declaration[1] + " " * len(declaration[2]) + text[declaration.end() :]


def parse_tree(data: bytes, uri: str) -> Element:
    """Parse a small document. Raises DocumentError as `report_events` does, and if elements are nested too deep.

    >>> parse_tree(b"<a><b>One &amp; two</b></a>", "a.xml")[0].text
    'One & two'
    """
    builder = TreeBuilder()
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        # Callers walk the tree recursively.
        if depth > DEEPEST:
            raise _UnsafeXml(f"its elements are nested more than {DEEPEST} deep. Save it again.")
        builder.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    report_events(decode_xml(data, uri).text, uri, start, end, builder.data)
    return builder.close()


def _qualified_name(name: str) -> str:
    return f"{{{name}" if _SEPARATOR in name else name


_LONGEST_ENTITY = 1_000


def _refuse_entity(name: str, is_parameter: bool, value: str | None, *rest: str | None) -> None:
    """Refuse entities that could grow or name a file. Allowed are a short text without further entities, and the name
    of a picture or the like, which no text can refer to."""
    is_short = value is not None and len(value) <= _LONGEST_ENTITY and "&" not in value and "%" not in value
    notation = rest[-1]
    if not notation and (is_parameter or not is_short):
        raise _UnsafeXml(
            f"it declares the entity {name!r}, which could grow or name a file. Take the declaration out of it."
        )
