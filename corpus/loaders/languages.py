"""Suffixes of source code and other plain-text sources, with the name of their language."""

from __future__ import annotations

from pathlib import PurePath

_SUFFIXES = {
    "ada": "adb ads",
    "asciidoc": "adoc asciidoc",
    "assembly": "asm s",
    "awk": "awk",
    "batch": "bat cmd",
    "bibtex": "bib",
    "c": "c h",
    "c#": "cs csx",
    "c++": "cc cpp cxx c++ hh hpp hxx inl",
    "clojure": "clj cljc cljs edn",
    "cmake": "cmake",
    "cobol": "cob cbl",
    "css": "css less sass scss",
    "cuda": "cu cuh",
    "cython": "pxd pyx",
    "d": "d",
    "dart": "dart",
    "diff": "diff patch",
    "elixir": "ex exs",
    "elm": "elm",
    "erlang": "erl hrl",
    "f#": "fs fsi fsx",
    "fortran": "f f03 f77 f90 f95 for",
    "glsl": "frag glsl vert",
    "go": "go",
    "graphql": "gql graphql",
    "groovy": "gradle groovy",
    "haskell": "hs lhs",
    "hcl": "hcl tf tfvars",
    "ini": "cfg conf ini properties",
    "java": "java",
    "javascript": "cjs js jsx mjs",
    "jinja": "j2 jinja jinja2",
    "julia": "jl",
    "kotlin": "kt kts",
    "latex": "cls sty tex",
    "lisp": "el lisp lsp scm",
    "lua": "lua",
    "makefile": "mak mk",
    "mdx": "mdx",
    "nim": "nim",
    "nix": "nix",
    "objective-c": "m mm",
    "ocaml": "ml mli",
    "org": "org",
    "pascal": "pas pp",
    "perl": "pl pm",
    "php": "php",
    "powershell": "ps1 psm1",
    "prolog": "pro",
    "protobuf": "proto",
    "python": "py pyi pyw",
    "r": "r rmd",
    "ruby": "gemspec rake rb",
    "rust": "rs",
    "scala": "sbt scala",
    "shell": "bash fish ksh sh zsh",
    "solidity": "sol",
    "sql": "ddl sql",
    "starlark": "bzl star",
    "subtitles": "srt vtt",
    "svelte": "svelte",
    "swift": "swift",
    "tcl": "tcl",
    "thrift": "thrift",
    "toml": "toml",
    "typescript": "cts mts ts tsx",
    "vb": "bas vb vbs",
    "verilog": "sv v vh",
    "vhdl": "vhd vhdl",
    "vim": "vim",
    "vue": "vue",
    "yaml": "yaml yml",
    "zig": "zig",
}

LANGUAGES = {f".{suffix}": language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
"""Suffix, in lower case with its dot, to language."""

_NAMES = {
    "brewfile": "ruby",
    "containerfile": "dockerfile",
    "dockerfile": "dockerfile",
    "gemfile": "ruby",
    "gnumakefile": "makefile",
    "jenkinsfile": "groovy",
    "justfile": "makefile",
    "makefile": "makefile",
    "rakefile": "ruby",
    "vagrantfile": "ruby",
}
_SHEBANGS = {"bash": "shell", "node": "javascript", "perl": "perl", "python": "python", "ruby": "ruby", "sh": "shell"}


def language_of(name: str, head: bytes = b"") -> str:
    """The language of a file by its name, or by its first line if that names an interpreter; empty if unknown."""
    path = PurePath(name)
    if path.suffix:
        return LANGUAGES.get(path.suffix.lower(), "")
    if path.name.lower() in _NAMES:
        return _NAMES[path.name.lower()]
    if not head.startswith(b"#!"):
        return ""
    words = head[2:200].split(b"\n", 1)[0].decode("latin-1").replace("/", " ").split()
    return next(
        (_SHEBANGS[word.rstrip(".0123456789")] for word in words if word.rstrip(".0123456789") in _SHEBANGS), ""
    )
