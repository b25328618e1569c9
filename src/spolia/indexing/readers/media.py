"""Recordings, sound or film: what is said in them, by a server that hears."""

from dataclasses import dataclass

from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.layout import LINE, Layout
from spolia.indexing.readers.reader import Blob, Reading
from spolia.models.http.transcriber import Transcriber
from spolia.types import Value


@dataclass(frozen=True)
class MediaReader(Value):
    """Reads recordings through a server that turns speech into text. What was said at a time is a region.

    It is not among the built-in readers, since it sends the files to a server:
    `sync(..., readers={"*.mp3": MediaReader(Transcriber("whisper-1", "https://api.openai.com/v1"))})`.

    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> body = b'{"text": "Old stones.", "segments": [{"start": 61.0, "end": 62.5, "text": " Old stones."}]}'
    >>> with OpenAIServer(ServedReply(body=body)) as server:
    ...     document = MediaReader(Transcriber("whisper-1", server.url)).read(Blob("a.mp3", b"...")).document
    >>> document.text, document.regions[0].kind, document.regions[0].caption
    ('Old stones.', 'segment', '0:01:01 - 0:01:02')
    """

    transcriber: Transcriber

    name = "recording"
    version = 1
    media_type = "text/plain"
    suffixes = (
        ".mp3", ".m4a", ".wav", ".ogg", ".oga", ".opus", ".flac", ".mpga", ".mp4", ".m4v", ".mpeg", ".webm", ".mov",
    )  # fmt: skip

    def read(self, blob: Blob, /) -> Reading:
        found = self.transcriber.transcribe(blob.uri.rpartition("/")[2], blob.data)
        layout = Layout()
        for segment in found.segments:
            layout.gap(LINE)
            mark = layout.mark()
            layout.write(segment.text)
            layout.region("segment", mark, caption=f"{_clock(segment.start_s)} - {_clock(segment.end_s)}")
        if not found.segments:
            layout.write(found.text)
        meta = fields(language=found.language, duration_s=found.duration_s or None)
        return layout.reading(self, blob, meta=meta)


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
