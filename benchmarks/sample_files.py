"""Small files of formats that a folder of documents rarely has: mail boxes, archives, LaTeX, source code and others."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from collections.abc import Collection, Iterator
from io import BytesIO
from pathlib import Path
from tarfile import SYMTYPE, TarInfo
from tarfile import open as open_tar

CODE = {
    "a.rs": b"pub struct Wall { stones: Vec<u8> }\nimpl Wall {\n    pub fn span(&self) -> f64 { 3.0 }\n}\n",
    "a.java": b"package walls;\n/* Dry. */\npublic final class Wall {\n    interface Span { int of(int t); }\n}\n",
    "a.sql": b"create table stones (name text, t real);\n-- Dark.\ninsert into stones values ('basalt', 3.0);\n",
    "a.yaml": b"stones:\n  - name: basalt\n    t: 3.0\n",
}
MHT = b"""From: a@a.org
Subject: Old Stones
Content-Type: multipart/related; boundary=b

--b
Content-Type: text/html

<h1>Walls</h1><p>Basalt is dark.</p><img src="cid:a">
--b
Content-Type: image/png
Content-ID: <a>
Content-Transfer-Encoding: base64

iVBORw0KGgo=
--b--
"""
RSS = (
    b"<?xml version='1.0'?><rss version='2.0'><channel><title>Walls</title><item><title>Basalt</title>"
    b"<description>&lt;p&gt;Basalt is dark.&lt;/p&gt;</description></item></channel></rss>"
)
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><title>Walls</title><text>Basalt is <tspan>dark</tspan>.</text></svg>"


def suffix_of(name: str, texts: Collection[str]) -> str:
    """The end of a name by which its reader is found; of two, the longer one.

    >>> suffix_of("a.tar.gz", (".gz", ".tar.gz")), suffix_of("a.txt.gz", (".gz", ".tar.gz"))
    ('.tar.gz', '.gz')
    """
    ends = Path(name.lower()).suffixes
    two = "".join(ends[-2:])
    return two if two in texts else ends[-1]


def made() -> dict[str, bytes]:
    """Files by name, at least one for each reader."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from tests.indexing.readers.compound import msg, xls
    from tests.indexing.readers.fixtures import FIXTURES

    files = {name: make() for name, make in FIXTURES.items()} | CODE | dict(_pictures())
    files |= {"a.msg": msg(), "a.xls": xls(), "a.mht": MHT, "a.rss": RSS, "a.svg": SVG}
    return files | dict(_archives(files))


def _pictures() -> Iterator[tuple[str, bytes]]:
    from PIL import Image

    frames = [Image.linear_gradient("L").resize((size, 40)) for size in (60, 60)]
    for suffix, more in ((".gif", True), (".tif", True), (".webp", False), (".bmp", False)):
        out = BytesIO()
        several = {"save_all": True, "append_images": [frames[1].rotate(90)]} if more else {}
        frames[0].save(out, {".tif": "TIFF"}.get(suffix, suffix[1:].upper()), **several)
        yield f"a{suffix}", out.getvalue()


def _archives(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Archives with archives, long names and links in them, in all packings."""
    from tests.indexing.readers.fixtures import zip_of

    yield "deep.zip", zip_of({name: files[name] for name in ("a.zip", "a.eml", "a.tar.gz", "a.csv", "a.md")})
    out = BytesIO()
    with open_tar(fileobj=out, mode="w") as archive:
        for name in ("a.zip", "a.csv", f"{'long/' * 60}a.md"):
            info = TarInfo(name)
            info.size = len(content := files[Path(name).name])
            archive.addfile(info, BytesIO(content))
        link = TarInfo("link.md")
        link.type, link.linkname = SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    packed = out.getvalue()
    yield "deep.tar", packed
    yield "deep.tar.gz", gzip.compress(packed, mtime=0)
    yield "deep.tar.bz2", bz2.compress(packed)
    yield "deep.tar.xz", lzma.compress(packed)
