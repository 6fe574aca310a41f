from __future__ import annotations

from pathlib import Path

import pytest

from thresher.api.config import Settings, load_settings
from thresher.api.errors import ConfigError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults() -> None:
    resolved = load_settings(environ={})
    assert resolved.settings == Settings()
    assert set(resolved.origins.values()) == {"default"}
    assert resolved.file is None


def test_file_below_environment_below_flags(thresher_home: Path) -> None:
    file = write(
        thresher_home / "config.toml",
        'collection = "from-file"\nmax_results = 3\nport = 1\ndeadline_s = 5\neffort = "low"\n',
    )
    resolved = load_settings(
        {"collection": "from-flag", "effort": None},
        environ={"THRESHER_COLLECTION": "from-env", "THRESHER_MAX_RESULTS": "4", "THRESHER_MAX_TURNS": ""},
    )
    settings, origins = resolved.settings, resolved.origins
    assert (settings.collection, origins["collection"]) == ("from-flag", "flag")
    assert (settings.max_results, origins["max_results"]) == (4, "THRESHER_MAX_RESULTS")
    assert (settings.port, origins["port"]) == (1, str(file))
    assert (settings.effort, settings.deadline_s) == ("low", 5.0)
    assert (settings.max_turns, origins["max_turns"]) == (None, "default")  # an empty variable is unset
    assert (settings.policy, origins["policy"]) == ("builtin", "default")


def test_a_named_file_replaces_the_one_in_home(thresher_home: Path, tmp_path: Path) -> None:
    write(thresher_home / "config.toml", "port = 1\n")
    by_variable = write(tmp_path / "variable.toml", "port = 2\n")
    by_flag = write(tmp_path / "flag.toml", "port = 3\n")
    environ = {"THRESHER_CONFIG": str(by_variable)}
    assert load_settings(environ=environ).settings.port == 2
    resolved = load_settings(environ=environ, config=by_flag)
    assert (resolved.settings.port, resolved.file) == (3, by_flag)
    with pytest.raises(ConfigError, match=r"absent\.toml does not exist"):
        load_settings(environ={}, config=tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('colection = "x"', r"unknown setting 'colection' in .*config\.toml; did you mean collection\?"),
        ("zzz = 1", "unknown setting 'zzz'.*the valid ones are collection, embedder"),
        ('port = "80"', r"port in .*config\.toml: input should be a valid integer, got '80'"),
        ("max_results = 0", "max_results in .*greater than or equal to 1, got 0"),
        ("max_tokens = 100", "max_tokens in .*greater than or equal to 4096"),
        ("max_tokens = 99999999999999999999", "max_tokens in .*less than or equal to 2000000"),
        ("deadline_s = inf", "deadline_s in .*finite number"),
        ('api_key = ""', "api_key in .*the key is blank; it must have at least 1 character"),
        ('api_key = " \\t"', "api_key in .*the key is blank"),
        ('effort = "huge"', "effort in .*'minimal', 'low', 'medium' or 'high', got 'huge'"),
        ('collection = "A B"', "collection in .*'A B' cannot name a collection"),
        ("save_traces = 1", "save_traces in .*valid boolean"),
        ("port = ", "is not valid TOML"),
        ("[search]\neffort = 'low'", "unknown setting 'search'"),
    ],
)
def test_mistakes_in_the_file(thresher_home: Path, text: str, message: str) -> None:
    write(thresher_home / "config.toml", text)
    with pytest.raises(ConfigError, match=message):
        load_settings(environ={})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "THRESHER_COLECTION",
            "x",
            "unknown setting THRESHER_COLECTION in the environment; did you mean THRESHER_COLLE",
        ),
        ("THRESHER_QQQQ", "", "unknown setting THRESHER_QQQQ in the environment; the valid ones are"),
        ("THRESHER_PORT", "high", "THRESHER_PORT: input should be a valid integer.*got 'high'"),
        ("THRESHER_PORT", "70000", "THRESHER_PORT: input should be less than or equal to 65535"),
        ("THRESHER_DEADLINE_S", "0", "THRESHER_DEADLINE_S: input should be greater than 0"),
        ("THRESHER_MAX_TOKENS", "2000001", "THRESHER_MAX_TOKENS: input should be less than or equal to 2000000"),
        ("THRESHER_API_KEY", "", "THRESHER_API_KEY: the key is blank.*or be left out"),
        ("THRESHER_API_KEY", "  ", "THRESHER_API_KEY: the key is blank"),
    ],
)
def test_mistakes_in_the_environment(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(environ={variable: value})


def test_variables_of_others_are_left_alone() -> None:
    environ = {"THRESHER_HOME": "/x", "THRESHER_TEST_DATA": "/y", "THRESHER_EMBEDDINGS_KEY": "k", "PATH": "/bin"}
    assert load_settings(environ=environ).settings == Settings()


def test_a_bad_flag_is_named_as_a_flag() -> None:
    with pytest.raises(ConfigError, match="--max-results: input should be less than or equal to 100"):
        load_settings({"max_results": 101}, environ={})


@pytest.mark.parametrize(
    ("name", "value", "flag"), [("deadline_s", -1.0, "--deadline:"), ("max_turns", 0, "--max-turns:")]
)
def test_a_flag_goes_by_the_name_it_has(name: str, value: float, flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag}"):
        load_settings({name: value}, environ={})


def test_a_key_has_no_white_space_around_it() -> None:
    key = load_settings(environ={"THRESHER_API_KEY": " s3cret\n"}).settings.api_key
    assert key is not None
    assert key.get_secret_value() == "s3cret"


def test_the_key_is_never_shown() -> None:
    resolved = load_settings(environ={"THRESHER_API_KEY": "s3cret"})
    assert "s3cret" not in repr(resolved)
    assert "s3cret" not in resolved.settings.model_dump_json()
    assert resolved.settings.api_key is not None
    assert resolved.settings.api_key.get_secret_value() == "s3cret"


@pytest.mark.parametrize(
    ("given", "value"), [("on", True), ("off", False), ("0.8", 0.8), (True, True), (0.9, 0.9), ("1", 1.0)]
)
def test_near_duplicates_is_a_switch_or_a_share(given: object, value: object) -> None:
    settings = load_settings({"near_duplicates": given}, environ={}).settings
    assert settings.near_duplicates == value
    assert type(settings.near_duplicates) is type(value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("near_duplicates", "maybe", "on, off, or a share"),
        ("near_duplicates", "1.5", "on, off, or a share"),
        ("near_duplicates", "nan", "on, off, or a share"),
        ("fusion", "sum", "choose one of rrf, tuned, convex:ALPHA"),
        ("chunker", "words", "unknown chunker 'words'"),
        ("chroma", "nowhere", "names no place for the dense index"),
        ("rerank_depth", "19", "greater than or equal to 20"),
        ("rerank_depth", "51", "less than or equal to 50"),
        ("ocr", "perhaps", "valid boolean"),
    ],
)
def test_values_of_search_and_storage_are_checked(name: str, value: str, message: str) -> None:
    variable = f"THRESHER_{name.upper()}"
    with pytest.raises(ConfigError, match=message) as refused:
        load_settings(environ={variable: value})
    assert str(refused.value).startswith(variable)


def test_a_server_has_chroma_in_a_child() -> None:
    plain = load_settings(environ={}).settings
    assert (plain.chroma_spec(serving=True), plain.chroma_spec(serving=False)) == ("child", "in-process")
    named = load_settings(environ={"THRESHER_CHROMA": "http://localhost:8000"}).settings
    assert {named.chroma_spec(serving=True), named.chroma_spec(serving=False)} == {"http://localhost:8000"}


def test_a_ranking_is_shared_and_switches_differ_from_shares() -> None:
    by_switch = load_settings({"near_duplicates": True}, environ={}).settings
    by_share = load_settings({"near_duplicates": 1.0}, environ={}).settings
    assert by_switch.ranking() is by_switch.ranking()
    assert by_share.ranking().near_duplicates == 1.0
    assert by_switch.ranking().near_duplicates != 1.0


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a.example, b.example", ("a.example", "b.example")),
        ('["CASE-[0-9]{3,4}", "x"]', ("CASE-[0-9]{3,4}", "x")),
        ("[0-9]+", ("[0-9]+",)),
        ("[1]", ("[1]",)),
    ],
)
def test_lists_are_written_with_commas_or_as_json(
    monkeypatch: pytest.MonkeyPatch, written: str, read: tuple[str, ...]
) -> None:
    monkeypatch.setenv("THRESHER_COLLECT_REDACT", written)
    assert load_settings().settings.collect_redact == read
