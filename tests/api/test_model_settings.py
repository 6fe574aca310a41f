"""Which model decides: settings, flags, requests and the check of `doctor`, and what never leaves the process."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import Outcome
from pydantic import SecretStr

from thresher.api.config import Settings, load_settings
from thresher.api.errors import ConfigError
from thresher.api.http import create_app
from thresher.api.operations.searching import SearchOperationRequest
from thresher.api.policies import PolicyChoice, open_policy
from thresher.api.service.searching.bodies import REQUEST_FIELDS, SearchBody
from thresher.engine.errors import InvalidRequest
from thresher.engine.requests import Effort, SearchRequest, Strategy

SECRET = "sk-xyzzyplugh"


@pytest.fixture(autouse=True)
def _no_variables_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


class ModelServer:
    """A real HTTP server that lists models, as far as it lets one in."""

    def __init__(self, models: object, *, key: str | None, status: int) -> None:
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                given = self.headers.get("Authorization")
                outer.asked.append((self.path, given))
                refused = key is not None and given != f"Bearer {key}"
                found = status if self.path == "/v1/models" else 404
                self.send_response(401 if refused else found)
                self.end_headers()
                self.wfile.write(json.dumps(models).encode())

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.root}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def model_server(
    *names: str, key: str | None = None, status: int = 200, models: object = None
) -> Iterator[ModelServer]:
    listed = {"object": "list", "data": [{"id": name} for name in names]}
    server = ModelServer(listed if models is None else models, key=key, status=status)
    try:
        yield server
    finally:
        server.close()


def policy_check() -> dict[str, Any]:
    outcome = Outcome("doctor", "--json")
    [check] = [check for check in outcome.json["checks"] if check["name"] == "policy"]
    assert outcome.code == (0 if outcome.json["ok"] else 1)
    return dict(check)


def test_a_model_is_named_by_settings() -> None:
    environ = {
        "THRESHER_POLICY": "chat:gpt-oss-20b",
        "THRESHER_MODEL_URL": "http://localhost:8001/v1/",
        "THRESHER_MODEL_API_KEY": SECRET,
        "THRESHER_MODEL_TEMPERATURE": "0.5",
        "THRESHER_STRATEGY": "mask-old",
        "THRESHER_PROFILE": "context1",
        "THRESHER_ROLLOUTS": "3",
        "THRESHER_SWARM": "true",
        "THRESHER_ANSWER": "1",
    }
    settings = load_settings(environ=environ).settings
    assert settings.policy_choice() == PolicyChoice(
        "chat:gpt-oss-20b", "context1", "http://localhost:8001/v1", temperature=0.5
    )
    request = settings.search_request("x")
    assert (request.strategy, request.rollouts, request.swarm) == (Strategy.MASK_OLD, 3, True)
    assert request.include_answer


def test_variables_of_others_fill_in_below_everything(thresher_home: Path) -> None:
    others = {"OPENAI_BASE_URL": "https://models.example/v1", "OPENAI_API_KEY": SECRET}
    resolved = load_settings(environ=others)
    assert resolved.settings.model_url == "https://models.example/v1"
    assert resolved.settings.model_api_key == SecretStr(SECRET)
    assert (resolved.origins["model_url"], resolved.origins["model_api_key"]) == ("OPENAI_BASE_URL", "OPENAI_API_KEY")
    thresher_home.mkdir(exist_ok=True)
    (thresher_home / "config.toml").write_text('model_url = "http://file:1/v1"\n')
    assert load_settings(environ=others).settings.model_url == "http://file:1/v1"
    ours = {**others, "THRESHER_MODEL_URL": "http://ours:1/v1", "THRESHER_MODEL_API_KEY": "mine"}
    resolved = load_settings({"model_url": "http://flag:1/v1"}, environ=ours)
    assert resolved.settings.model_url == "http://flag:1/v1"
    assert resolved.settings.model_api_key == SecretStr("mine")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("THRESHER_MODEL_URL", "localhost:8000", "is no model URL: use http"),
        ("THRESHER_MODEL_URL", f"http://me:{SECRET}@host/v1", "does not belong into the URL; set THRESHER_MODEL_API_K"),
        ("OPENAI_BASE_URL", f"http://{SECRET}@host/v1", "^OPENAI_BASE_URL: .*does not belong into the URL"),
        ("THRESHER_POLICY", f"chat:m@http://me:{SECRET}@host/v1", "does not belong into the URL"),
        ("THRESHER_MODEL_API_KEY", " ", "the key is blank"),
        ("THRESHER_STRATEGY", "forget", "'prune', 'fold', 'mask-old', 'discard-all' or 'none', got 'forget'"),
        ("THRESHER_PROFILE", "context2", "'thresher', 'context1' or 'small', got 'context2'"),
        ("THRESHER_ROLLOUTS", "17", "less than or equal to 16"),
        ("THRESHER_PRICE_PROMPT", "-1", "greater than or equal to 0"),
        ("THRESHER_MODEL_TEMPERATURE", "3", "less than or equal to 2"),
    ],
)
def test_mistakes_name_their_place_and_no_secret(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load_settings(environ={variable: value})
    assert SECRET not in str(refused.value)


def test_the_key_is_nowhere_to_be_seen(
    harbour: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, thresher_home: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    with model_server("m", key="another") as server:
        monkeypatch.setenv("THRESHER_POLICY", "chat:m")
        monkeypatch.setenv("THRESHER_MODEL_URL", server.url)
        monkeypatch.setenv("THRESHER_MODEL_API_KEY", SECRET)
        said = []
        for command in (["doctor"], ["doctor", "--json"], ["search", "yard", "-c", harbour, "-v", "--json"]):
            outcome = Outcome(*command)
            said += [outcome.out, outcome.err]
        assert ("/v1/models", f"Bearer {SECRET}") in server.asked, "it was sent where it belongs"
    settings = load_settings().settings
    said += [repr(settings), settings.model_dump_json(), repr(settings.policy_choice()), caplog.text]
    said += [path.read_text() for path in thresher_home.glob("traces/*")]
    assert SECRET not in "".join(said)


def test_a_request_that_travels_holds_no_secret() -> None:
    settings = load_settings(environ={"THRESHER_POLICY": "chat:m", "THRESHER_MODEL_API_KEY": SECRET}).settings
    request = SearchOperationRequest(search=settings.search_request("x"), policy=settings.policy_choice())
    sent = json.dumps(request.model_dump(), default=str)
    assert SECRET not in sent
    assert SearchOperationRequest.model_validate(json.loads(sent)) == request


def test_a_request_that_travelled_is_checked_again() -> None:
    with pytest.raises(InvalidRequest, match="rollouts must lie in"):
        SearchOperationRequest.model_validate({"search": {"query": "x", "rollouts": 99}})


def test_a_body_has_no_field_for_a_model_or_a_secret() -> None:
    names = set(SearchBody.model_fields)
    assert not {name for name in names if "key" in name or "model" in name or "url" in name or name == "policy"}
    assert set(REQUEST_FIELDS) <= names
    assert set(SearchRequest.__slots__) == {*REQUEST_FIELDS, "query"}


def test_one_plain_search_is_no_mistake_where_the_settings_ask_for_more() -> None:
    settings = load_settings({"rollouts": 4, "swarm": True}, environ={}).settings
    plain = settings.search_request("x", effort=Effort.MINIMAL)
    assert (plain.rollouts, plain.swarm) == (1, False)
    with pytest.raises(InvalidRequest, match="neither a swarm nor rollouts"):
        settings.search_request("x", effort=Effort.MINIMAL, rollouts=2)


@pytest.mark.parametrize(
    ("spec", "asked", "style", "profile"),
    [
        ("tokens:chromadb/context-1", None, "context1", "context1"),
        ("tokens:chromadb/context-1", "thresher", "harmony", "thresher"),
        ("tokens:chromadb/context-1", "context1", "context1", "context1"),
        ("tokens:openai/gpt-oss-20b", None, "harmony", "thresher"),
        ("tokens:openai/gpt-oss-20b", "context1", "context1", "context1"),
    ],
)
def test_a_profile_is_the_models_own_unless_another_is_asked_for(
    spec: str, asked: str | None, style: str, profile: str
) -> None:
    choice = PolicyChoice(spec, asked)
    factory: Any = choice.make()
    assert factory.style.name == style
    assert choice.engine_profile(factory).name == profile


def test_the_profile_of_a_policy_without_a_model() -> None:
    builtin = PolicyChoice()
    assert builtin.engine_profile(builtin.make()).name == "thresher"
    with pytest.raises(InvalidRequest, match="chat policies do not read: use tokens:MODEL"):
        PolicyChoice("chat:m", "context1").make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "oracle"], "there is no policy 'oracle'"),
        (["--policy", "chat:"], "'chat:' names no model"),
        (["--strategy", "forget"], "--strategy: input should be 'prune'"),
        (["--profile", "context2"], "--profile: input should be 'thresher', 'context1' or 'small'"),
        (["--rollouts", "0"], "--rollouts: input should be greater than or equal to 1"),
        (["--model-url", "nowhere"], "--model-url: 'nowhere' is no model URL"),
        (["--swarm", "--effort", "minimal"], "effort minimal is one search without a policy"),
    ],
)
def test_flags_are_checked(harbour: str, arguments: list[str], message: str) -> None:
    outcome = Outcome("search", "yard", "-c", harbour, *arguments)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
    assert message in outcome.err


@pytest.mark.parametrize(
    ("command", "missing"),
    [("search", set()), ("eval", set()), ("demo", {"--max-results"}), ("serve", {"--effort", "--max-results"})],
)
def test_every_command_that_searches_has_the_same_flags(command: str, missing: set[str]) -> None:
    flags = {"--effort", "--policy", "--model-url", "--profile", "--strategy", "--rollouts", "--swarm", "--answer"}
    shown = Outcome(command, "--help").out
    for flag in {*flags, "--max-results"} - missing:
        assert flag in shown, flag
    assert "-key" not in shown, "a key on the command line would be in `ps`"


def test_an_answer_is_written_and_cited(harbour: str) -> None:
    found = Outcome("search", "Who was the founder of the Brask works?", "-c", harbour, "--answer", "--json").json
    if found["answer"] is None:
        assert found["answer_withheld"]
        assert found["citations"] == []
    else:
        texts = {item["id"]: (item["start"], item["text"]) for item in found["results"]}
        assert found["citations"]
        for citation in found["citations"]:
            start, text = texts[citation["id"]]
            assert text[citation["start"] - start : citation["end"] - start] == citation["text"]
    kept = Outcome("trace", "show", "last", "--json").json
    for name in ("answer", "answer_withheld", "citations", "refused_citations"):
        assert kept[name] == found[name]
    silent = Outcome("search", "Who was the founder of the Brask works?", "-c", harbour, "--json").json
    assert (silent["answer"], silent["answer_withheld"]) == (None, None)


async def test_requests_ask_for_strategy_rollouts_swarm_and_answer(harbour: str) -> None:
    app = create_app(Settings(collection=harbour, chroma="in-process"))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        body = {"query": "Where stood the yard of Corran & Sons?", "effort": "low", "strategy": "none", "rollouts": 2}
        answered = await http.post("/v1/search", json={**body, "include_answer": True, "include_trace": True})
        assert answered.status_code == 200, answered.text
        found = answered.json()
        assert (found["answer"] is None) == (found["answer_withheld"] is not None)
        assert len(found["trajectory"]["subagents"]) == 2
        assert found["usage"]["critical_steps"] < found["usage"]["turns"]
        swarm = await http.post(
            "/v1/search", json={"query": "Where was the yard?", "swarm": True, "max_critical_steps": 2}
        )
        assert swarm.status_code == 200, swarm.text
        assert swarm.json()["usage"]["critical_steps"] <= 2
        for field, value in (("rollouts", 17), ("rollouts", 0), ("strategy", "forget"), ("max_critical_steps", 0)):
            refused = await http.post("/v1/search", json={"query": "x", field: value})
            assert (refused.status_code, refused.json()["error"]["param"]) == (422, field)
        for field in ("policy", "model_url", "model_api_key", "profile"):
            refused = await http.post("/v1/search", json={"query": "x", field: "x"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "unknown_field")


async def test_connections_are_closed_with_the_server_and_after_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Factory:
        def __call__(self, collection: object) -> None:
            raise AssertionError("nothing is searched here")

        async def aclose(self) -> None:
            closed.append("closed")

    monkeypatch.setattr(PolicyChoice, "make", lambda choice, key: Factory())
    app = create_app(Settings(chroma="in-process"))
    async with app.router.lifespan_context(app):
        assert closed == []
    assert closed == ["closed"]
    with pytest.raises(RuntimeError, match="broken"):
        async with open_policy(PolicyChoice()):
            raise RuntimeError("broken")
    assert closed == ["closed", "closed"]


def test_doctor_finds_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_server("other", "gpt-oss:latest", key=SECRET) as server:
        monkeypatch.setenv("THRESHER_MODEL_API_KEY", SECRET)
        monkeypatch.setenv("THRESHER_MODEL_URL", server.url)
        monkeypatch.setenv("THRESHER_POLICY", "chat:gpt-oss")
        check = policy_check()
        assert check["ok"], check
        assert f"the server at {server.url} answers and has the model" in check["detail"]
        monkeypatch.setenv("THRESHER_MODEL_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("THRESHER_POLICY", f"chat:other@{server.url}")
        assert policy_check()["ok"], "the address in the spec goes first"


@pytest.mark.parametrize(
    ("names", "options", "environ", "message"),
    [
        (("a", "b"), {}, {}, "has no model 'm', it has a, b: name one of its models"),
        (("m",), {"key": SECRET}, {}, "wants a key: set THRESHER_MODEL_API_KEY"),
        (("m",), {"key": SECRET}, {"OPENAI_API_KEY": "no"}, "refuses the key from OPENAI_API_KEY: set THRESHER_MODEL_"),
        (("m",), {"status": 404}, {}, "has no list of models: a model URL usually ends in /v1"),
        (("m",), {"status": 500}, {}, "answers 500, which is no list of models"),
        ((), {"models": ["m"]}, {}, "answers 200, which is no list of models"),
    ],
)
def test_doctor_says_what_is_wrong_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    options: dict[str, Any],
    environ: dict[str, str],
    message: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with model_server(*names, **options) as server:
        monkeypatch.setenv("THRESHER_POLICY", "chat:m")
        monkeypatch.setenv("THRESHER_MODEL_URL", server.url)
        check = policy_check()
    assert not check["ok"]
    assert message in check["detail"]


def test_doctor_says_how_to_start_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_server() as server:
        url = server.url
    monkeypatch.setenv("THRESHER_POLICY", "chat:some/model")
    monkeypatch.setenv("THRESHER_MODEL_URL", url)
    check = policy_check()
    assert not check["ok"]
    assert f"no model server answers at {url}" in check["detail"]
    assert "`vllm serve some/model`" in check["detail"]


def test_strategies_are_compared_side_by_side(evaluation_set: Path) -> None:
    arguments = ["eval", evaluation_set, "--embedder", "wordllama", "--effort", "low", "--compare", "prune,none"]
    outcome = Outcome(*arguments, "--json")
    assert outcome.code == 0, outcome.err
    data = outcome.json
    assert [system["strategy"] for system in data["systems"]] == [None, "prune", "none"]
    [found] = data["sets"]
    assert list(found["systems"]) == ["one-search", "prune", "none"]
    assert found["systems"]["none"]["summary"]["pruned"] == 0
    assert set(found["differences"]) == {"prune", "none"}
    shown = Outcome(*arguments)
    assert "recall@10, none minus one search" in shown.out
    assert "tokens prefilled again" in shown.out
    assert "critical steps" not in shown.out
    refused = Outcome("eval", evaluation_set, "--compare", "prune,forget")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "there is no system 'forget'" in refused.err
    both = Outcome(*arguments, "--strategy", "fold")
    assert (both.code, both.err) == (2, "error: --compare names the strategies itself: leave --strategy out\n")


def test_what_a_swarm_took_is_in_the_table(evaluation_set: Path) -> None:
    arguments = ["eval", evaluation_set, "--embedder", "wordllama", "--effort", "low", "--swarm"]
    shown = Outcome(*arguments)
    assert shown.code == 0, shown.err
    for row in ("sub-agents", "sub-agents of use", "critical steps", "turns a critical step"):
        assert row in shown.out
    [found] = Outcome(*arguments, "--json").json["sets"]
    system = found["systems"]["builtin+swarm+effort=low"]["summary"]
    assert system["critical_steps"] >= 1
    assert system["speedup"] >= 1


def test_answers_of_an_evaluation_are_scored(evaluation_set: Path) -> None:
    arguments = ["eval", evaluation_set, "--embedder", "wordllama", "--effort", "low", "--limit", 2]
    [found] = Outcome(*arguments, "--answer", "--json").json["sets"]
    answers = [row["systems"]["builtin+effort=low"]["answer"] for row in found["rows"]]
    assert any(answers), "the corpus holds both answers word for word"
    held = [wanted in (answer or "") for wanted, answer in zip(("Edda Brask", "Port Ellin"), answers, strict=True)]
    assert found["systems"]["builtin+effort=low"]["summary"]["answer_right"] == sum(held) / 2
    [silent] = Outcome(*arguments, "--json").json["sets"]
    assert silent["systems"]["builtin+effort=low"]["summary"]["answer_right"] is None
