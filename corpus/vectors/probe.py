"""`python -m thresher.corpus.vectors.probe DIRECTORY`: try a Chroma directory, print what was seen as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from thresher.corpus.vectors.chroma import try_directory
from thresher.corpus.vectors.files import check_files

if __name__ == "__main__":
    check_files(Path(sys.argv[1]))
    print(json.dumps(asdict(try_directory(Path(sys.argv[1])))))
