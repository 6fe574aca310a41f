"""Optical character recognition of pictures and scanned pages through RapidOCR, whose models come in its wheel.

Optional: the `ocr` extra. Everything here runs in the parser's child process.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.corpus.documents import PAGE_BREAK
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import NoText, Part, Unsupported, normalise
from thresher.corpus.loaders.formats import OCR_HINT
from thresher.corpus.loaders.limits import Limits

DPI = 200
MOST_PAGES = 500
_MOST_PIXELS = 40_000_000
_LONGEST_SIDE = 4000
_THREADS = 2
_LEAST_SCORE = 0.5

Picture = npt.NDArray[np.uint8]  # (height, width, 3), BGR


def require_ocr() -> None:
    """Raises LoaderError, with the command to run, unless the package is installed."""
    if importlib.util.find_spec("rapidocr") is None:
        raise LoaderError("OCR needs a package that is not installed: pip install 'thresher[ocr]'")


def image_part(data: bytes, limits: Limits) -> Part:
    """The text of a picture; pages of a TIFF are pages of the text.

    Raises:
        Unsupported: OCR is off.
        NoText: no text was recognised.
        LoaderError: the picture is damaged or too large.
    """
    if not limits.ocr:
        raise Unsupported(f"a picture; {OCR_HINT}")
    pages = [read_picture(picture) for picture in _pictures(data, limits)]
    if not any(pages):
        raise NoText("no text was recognised in the picture")
    return Part(PAGE_BREAK.join(pages), metadata={"format": "image", "ocr": True, "pages": len(pages)})


def read_picture(picture: Picture) -> str:
    """The recognised text, in lines from top to bottom; empty if there is none."""
    found = _engine()(picture)
    if found is None or found.txts is None or found.boxes is None:
        return ""
    scores = found.scores if found.scores is not None else [1.0] * len(found.txts)
    words = [
        (np.asarray(box, dtype=float), text)
        for box, text, score in zip(found.boxes, found.txts, scores, strict=True)
        if score >= _LEAST_SCORE and text.strip()
    ]
    return normalise(_lines(words)).replace(PAGE_BREAK, " ").strip()


def _lines(words: list[tuple[Any, str]]) -> str:
    """Boxes whose middles are at about one height are a line; a gap of more than a line is a paragraph."""
    rows: list[tuple[float, float, list[tuple[float, str]]]] = []  # middle, height, (left, text)
    for box, text in sorted(words, key=lambda word: float(word[0][:, 1].mean())):
        middle, height = float(box[:, 1].mean()), float(np.ptp(box[:, 1]))
        left = float(box[:, 0].min())
        if rows and middle - rows[-1][0] < 0.5 * min(height, rows[-1][1]):
            rows[-1][2].append((left, text))
        else:
            rows.append((middle, height, [(left, text)]))
    out: list[str] = []
    for place, (middle, height, members) in enumerate(rows):
        if place and middle - rows[place - 1][0] > 2.2 * max(height, rows[place - 1][1]):
            out.append("")
        out.append(" ".join(text for _, text in sorted(members)))
    return "\n".join(out)


@cache
def _engine() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.log_level": "error",
            "EngineConfig.onnxruntime.intra_op_num_threads": _THREADS,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def _pictures(data: bytes, limits: Limits) -> Iterator[Picture]:
    from PIL import Image, ImageOps, ImageSequence

    Image.MAX_IMAGE_PIXELS = _MOST_PIXELS
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise LoaderError(f"the picture has more than {_MOST_PIXELS // 10**6} million pixels")
            for number, frame in enumerate(ImageSequence.Iterator(image)):
                if number >= MOST_PAGES or limits.late:
                    raise LoaderError(f"the picture has more pages than OCR can read in time ({number} were read)")
                upright = ImageOps.exif_transpose(frame).convert("RGB")
                upright.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
                yield np.asarray(upright)[:, :, ::-1].copy()
    except (LoaderError, MemoryError):
        raise
    except Exception as error:  # Pillow raises SyntaxError, struct.error, OSError and its own on damaged files
        raise LoaderError(f"the picture is damaged or of an unknown kind ({error})") from error
