from __future__ import annotations

import codecs

import pytest

from thresher.corpus.loaders.base import Unsupported, normalise
from thresher.corpus.loaders.encoding import decode
from thresher.corpus.loaders.html import extract_html

GERMAN = "Die schöne Frau trägt grüne Schuhe über die Straße. " * 5
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 5
JAPANESE = "名前と年齢と住所を書いてください。東京都に住んでいます。" * 5


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_byte_order_marks(mark: bytes, encoding: str) -> None:
    assert decode(mark + GERMAN.encode(encoding), "latin-1") == GERMAN


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_mark(encoding: str) -> None:
    assert decode(GERMAN.encode(encoding)) == GERMAN


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(GERMAN, "cp1252"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8_r"), (JAPANESE, "shift_jis"), (JAPANESE, "euc_jp")],
)
def test_undeclared_legacy_encodings_are_guessed(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Имя;Город\nИван;Казань\n", "cp1251"),
        ("Москва является столицей России.", "koi8_r"),
        ("Москва является столицей России.", "cp866"),
        ("Київ є столицею України, стоїть на Дніпрі.", "cp1251"),
        ("名前,年齢\n佐藤太郎,30\n", "shift_jis"),
        ("東京は日本の首都です。", "euc_jp"),
        ("東京は日本の首都です。", "iso2022_jp"),
        ("中国的首都是北京,人口超过两千万。", "gb18030"),
        ("姓名,年龄\n王小明,30\n", "gb18030"),
        ("台灣的首都是台北,這是一個現代化的城市。", "big5"),
        ("서울은 대한민국의 수도이다.", "euc_kr"),
        ("L'été dernier, à côté de la forêt", "cp1252"),
        ("El año pasado llovió aquí, ¿verdad?", "cp1252"),
        ("“Quoted” – she said… it’s £5", "cp1252"),
        ("Zażółć gęślą jaźń. Warszawa jest stolicą Polski.", "cp1250"),
        ("Η Αθήνα είναι η πρωτεύουσα της Ελλάδας.", "cp1253"),
        ("القاهرة هي عاصمة جمهورية مصر العربية.", "cp1256"),
        ("ירושלים היא עיר הבירה של מדינת ישראל.", "cp1255"),
        ("The quick brown fox jumps over the lazy dog, twice.", "cp500"),
        ("Die schöne Frau trägt grüne Schuhe.", "cp037"),
    ],
)
def test_short_texts_are_guessed_too(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [RUSSIAN, JAPANESE + "\n42 ", "Η Αθήνα είναι η πρωτεύουσα. "])
def test_utf16_of_other_scripts_without_mark(text: str, encoding: str) -> None:
    assert decode((text * 3).encode(encoding)) == text * 3


def test_a_declaration_helps_where_utf8_fails() -> None:
    assert decode("naïve".encode("cp1252"), "windows-1252") == "naïve"
    assert decode(JAPANESE.encode("iso2022_jp"), "iso-2022-jp") == JAPANESE


def test_valid_utf8_beats_a_wrong_declaration() -> None:
    page = f'<meta charset="iso-8859-5"><body><p>{GERMAN}</p></body>'
    assert extract_html(page.encode()).text == GERMAN.strip()


def test_an_unknown_declaration_is_ignored() -> None:
    assert decode(GERMAN.encode("cp1252"), "no-such-charset") == GERMAN


def test_html_meta_charset_is_read() -> None:
    page = f'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r"><p>{RUSSIAN}</p>'
    assert extract_html(page.encode("koi8_r")).text == RUSSIAN.strip()


def test_utf8_with_stray_windows_bytes() -> None:
    mixed = "Köln ".encode() * 10 + b"\x93quoted\x94 caf\xe9 " + "Zürich".encode()
    assert decode(mixed) == "Köln " * 10 + "“quoted” café Zürich"


def test_the_locale_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert decode(GERMAN.encode()) == GERMAN


@pytest.mark.parametrize(
    "data", [bytes(range(32)) * 100, b"\x7fELF" + bytes(2000), b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 30]
)
def test_binary_is_refused(data: bytes) -> None:
    with pytest.raises(Unsupported, match="binary"):
        decode(data)


def test_normalise() -> None:
    assert normalise("\ufeffa\r\nb\rc\x00\x01d\fe\tf\ud800") == "a\nb\nc d\fe\tf\ufffd"
