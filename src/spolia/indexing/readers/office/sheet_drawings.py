"""Texts of drawings on a sheet of XLSX, which the library lacks: text boxes, shapes, SmartArt.

ECMA-376-1, 20.5 (drawings of spreadsheets).
"""

import zipfile

from spolia.indexing.readers.layout import Layout
from spolia.indexing.readers.office.drawing_ml import ALTERNATE, DIAGRAM, FALLBACK, A, R, write_diagram
from spolia.indexing.readers.office.opc import relations_of
from spolia.indexing.readers.safe_xml import parse_tree

_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing}txBody"


def write_drawings(layout: Layout, archive: zipfile.ZipFile, sheet: str) -> None:
    """Write the texts of the shapes on a sheet, each as paragraphs.

    Args:
        sheet: name of its part.
    """
    for relation in relations_of(archive, sheet):
        if relation.type.endswith("/drawing"):
            _write_drawing(layout, archive, relation.target)


def _write_drawing(layout: Layout, archive: zipfile.ZipFile, drawing: str) -> None:
    root = parse_tree(archive.read(drawing), drawing)
    targets = {relation.id: relation.target for relation in relations_of(archive, drawing)}
    for alternate in root.iter(ALTERNATE):
        # The form for older programs repeats the same texts.
        for older in alternate.findall(FALLBACK):
            alternate.remove(older)
    for element in root.iter():
        if element.tag == _TEXT:
            for paragraph in element.iter(f"{A}p"):
                if text := "".join(run.text or "" for run in paragraph.iter(f"{A}t")).strip():
                    layout.write_paragraph(text)
        elif element.tag == f"{DIAGRAM}relIds":
            data = targets[element.get(f"{R}dm", "")]
            write_diagram(layout, parse_tree(archive.read(data), data))
