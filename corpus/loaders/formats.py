"""Which loader reads which file, by its name. What the bytes say against the name is `sniff`'s business."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePath

from thresher.corpus.loaders.base import Unsupported
from thresher.corpus.loaders.languages import LANGUAGES
from thresher.corpus.plugins import Group, plugin_names


class Format(StrEnum):
    """What a file is read as."""

    TEXT = "text"
    MARKUP = "markup"  # text with headings: markdown, reStructuredText
    CODE = "code"
    HTML = "html"
    PDF = "pdf"
    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    JSONL = "jsonl"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"
    ODF = "odf"  # OpenDocument text, spreadsheet, presentation
    RTF = "rtf"
    LEGACY = "legacy"  # .doc, .xls, .ppt: often something else under an old name
    MAIL = "mail"
    MBOX = "mbox"
    NOTEBOOK = "notebook"
    XML = "xml"
    FEED = "feed"  # RSS and Atom
    ZIP = "zip"
    IMAGE = "image"
    PLUGIN = "plugin"  # what another package reads (`thresher.corpus.plugins`)


SUFFIXES = {
    **dict.fromkeys((".txt", ".text", ".log"), Format.TEXT),
    **dict.fromkeys((".md", ".markdown", ".rst"), Format.MARKUP),
    **dict.fromkeys(LANGUAGES, Format.CODE),
    **dict.fromkeys((".html", ".htm", ".xhtml"), Format.HTML),
    ".pdf": Format.PDF,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    **dict.fromkeys((".docx", ".docm", ".dotx"), Format.DOCX),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), Format.PPTX),
    **dict.fromkeys((".xlsx", ".xlsm"), Format.XLSX),
    **dict.fromkeys((".odt", ".ods", ".odp"), Format.ODF),
    ".rtf": Format.RTF,
    **dict.fromkeys((".doc", ".dot", ".xls", ".ppt"), Format.LEGACY),
    **dict.fromkeys((".eml", ".msg", ".mht", ".mhtml"), Format.MAIL),
    ".mbox": Format.MBOX,
    ".ipynb": Format.NOTEBOOK,
    ".xml": Format.XML,
    **dict.fromkeys((".rss", ".atom"), Format.FEED),
    ".zip": Format.ZIP,
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff"), Format.IMAGE),
}

# Parsers of these run in a child process: their libraries meet hostile input and can crash, hang or fill the memory.
ISOLATED = frozenset(
    {
        Format.HTML,
        Format.PDF,
        Format.DOCX,
        Format.PPTX,
        Format.XLSX,
        Format.ODF,
        Format.RTF,
        Format.LEGACY,
        Format.MAIL,
        Format.NOTEBOOK,
        Format.XML,
        Format.FEED,
        Format.ZIP,
        Format.IMAGE,
        Format.PLUGIN,
    }
)

# Read from disk record by record, whatever their size.
STREAMED = frozenset({Format.JSONL, Format.MBOX})

OCR_HINT = "OCR is an optional extra: pip install 'thresher[ocr]', then ingest with `--ocr`"


def format_of(path: PurePath) -> Format:
    """The format by suffix; a file without one (README, LICENSE) is text until its bytes say otherwise.

    Raises:
        Unsupported: no loader reads this suffix.
    """
    suffix = path.suffix.lower()
    if not suffix:
        return Format.TEXT
    if suffix not in SUFFIXES and suffix[1:] in plugin_names(Group.LOADERS):
        return Format.PLUGIN
    if suffix not in SUFFIXES:
        raise Unsupported(
            f"no loader for {suffix} files; save it as .txt, .md, .html, .pdf, .docx, .pptx, .xlsx, .csv, .json or .zip"
        )
    return SUFFIXES[suffix]
