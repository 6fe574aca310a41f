"""`docker compose` without Docker: profiles, services and files that a command names must be in compose.yaml."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["build"]:
        sys.exit(None if Path(arguments[-1], "Dockerfile").is_file() else f"there is no Dockerfile in {arguments[-1]}")
    if arguments[:1] != ["compose"]:
        sys.exit(f"this stand-in knows docker build and docker compose, not {' '.join(arguments)}")
    parser = argparse.ArgumentParser(prog="docker compose")
    parser.add_argument("--profile", action="append", default=[])
    parser.add_argument("-f", "--file", type=Path, default=Path("compose.yaml"))
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up")
    up.add_argument("--build", action="store_true")
    up.add_argument("-d", "--detach", action="store_true")
    up.add_argument("service", nargs="*")
    for name in ("exec", "run"):
        inside = commands.add_parser(name)
        inside.add_argument("-T", "--no-TTY", action="store_true")
        inside.add_argument("--rm", action="store_true")
        inside.add_argument("service")
        inside.add_argument("inner", nargs=argparse.REMAINDER)
    for name in ("logs", "ps", "pull", "build", "restart", "stop"):
        commands.add_parser(name).add_argument("service", nargs="*")
    commands.add_parser("down").add_argument("-v", "--volumes", action="store_true")
    told = parser.parse_args(arguments[1:])

    services = yaml.safe_load(told.file.read_text("utf-8"))["services"]
    profiles = {name for service in services.values() for name in service.get("profiles", [])}
    if unknown := set(told.profile) - profiles:
        parser.error(f"{told.file} has no profile {unknown}")
    named = getattr(told, "service", [])
    if unknown := set([named] if isinstance(named, str) else named) - set(services):
        parser.error(f"{told.file} has no service {unknown}")
    if told.command == "up" and told.detach is False:
        parser.error("it would stay in the foreground: a page says --detach")


if __name__ == "__main__":
    main(sys.argv[1:])
