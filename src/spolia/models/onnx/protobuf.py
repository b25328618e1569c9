"""Writes an ONNX model in the protocol-buffer wire format; field numbers are from onnx.proto3."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

Attribute: TypeAlias = int | float | Sequence[int]
FLOAT, INT32, INT64 = 1, 6, 7
"""Element types of `TensorProto.DataType`."""


def model(graph: bytes, opsets: Mapping[str, int], ir_version: int) -> bytes:
    """A `ModelProto`. `opsets`: version of each operator domain, the standard one being empty."""
    imports = (_message(8, _text(1, domain) + _number(2, version)) for domain, version in opsets.items())
    return _number(1, ir_version) + _message(7, graph) + b"".join(imports)


def graph(
    name: str, nodes: Iterable[bytes], tensors: Iterable[bytes], inputs: Iterable[bytes], outputs: Iterable[bytes]
) -> bytes:
    """A `GraphProto`."""
    parts = [_message(1, node) for node in nodes] + [_text(2, name)]
    for number, messages in ((5, tensors), (11, inputs), (12, outputs)):
        parts.extend(_message(number, message) for message in messages)
    return b"".join(parts)


def node(kind: str, inputs: Sequence[str], output: str, domain: str, attributes: Mapping[str, Attribute]) -> bytes:
    """A `NodeProto` with one output; an empty input name leaves an optional input out."""
    named = b"".join(_text(1, name) for name in inputs) + _text(2, output) + _text(4, kind)
    return named + b"".join(_message(5, _attribute(*item)) for item in attributes.items()) + _text(7, domain)


def external(name: str, shape: Sequence[int]) -> bytes:
    """A float `TensorProto` whose numbers are given to the session apart from the graph."""
    place = _message(13, _text(1, "location") + _text(2, "weights"))
    return _shape(shape) + _number(2, FLOAT) + _text(8, name) + place + _number(14, 1)


def integers(name: str, values: Sequence[int]) -> bytes:
    """A `TensorProto` with a vector of 64-bit integers."""
    return (
        _shape((len(values),))
        + _number(2, INT64)
        + _text(8, name)
        + _message(9, struct.pack(f"<{len(values)}q", *values))
    )


def value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    """A `ValueInfoProto`: an input or output whose dimensions are sizes or names."""
    sizes = (_message(1, _text(2, size) if isinstance(size, str) else _number(1, size)) for size in shape)
    tensor = _number(1, kind) + _message(2, b"".join(sizes))
    return _text(1, name) + _message(2, _message(1, tensor))


def _attribute(name: str, found: Attribute) -> bytes:
    if isinstance(found, float):
        return _text(1, name) + _tag(2, 5) + struct.pack("<f", found) + _number(20, 1)
    if isinstance(found, int):
        return _text(1, name) + _number(3, found) + _number(20, 2)
    return _text(1, name) + b"".join(_number(8, each) for each in found) + _number(20, 7)


def _shape(sizes: Sequence[int]) -> bytes:
    return b"".join(_number(1, size) for size in sizes)


def _number(field: int, found: int) -> bytes:
    return _tag(field, 0) + _varint(found & 0xFFFF_FFFF_FFFF_FFFF)  # negative ones as 64-bit two's complement


def _text(field: int, found: str) -> bytes:
    return _message(field, found.encode())


def _message(field: int, found: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(found)) + found


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _varint(found: int) -> bytes:
    """Seven bits a byte, low ones first; the eighth bit says that more follow."""
    out = bytearray()
    while found > 0x7F:
        out.append(found & 0x7F | 0x80)
        found >>= 7
    out.append(found)
    return bytes(out)
