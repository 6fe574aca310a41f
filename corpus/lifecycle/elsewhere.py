"""What an index beside keeps outside its directory: on a Chroma server or in Chroma Cloud."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

from thresher.corpus.backends import Backends
from thresher.corpus.layout import open_record
from thresher.corpus.lexical.local import IDENTITY as LOCAL_LEXICAL
from thresher.corpus.lexical.managed import RECORDED_HOME
from thresher.corpus.vectors.local import IDENTITY as LOCAL_DENSE
from thresher.corpus.vectors.residence import DENSE_HOME, collection_id

logger = logging.getLogger(__name__)


def forget_elsewhere(side: Path, backends: Backends) -> None:
    """Remove the generations of the collection in `side` that are not in its directory.

    What is at a place that `backends` does not name cannot be reached from here and is left, with a warning.

    Raises:
        IndexUnreachable: the place does not answer; nothing is to be removed here then.
    """
    manifest, store = open_record(side)
    with closing(store):
        dense, lexical = store.meta(DENSE_HOME), store.meta(RECORDED_HOME)
        if dense not in (None, LOCAL_DENSE):
            home = backends.dense.home(side / "chroma", collection_id(store))
            try:
                if home.identity == dense:
                    home.keep_only(0, quarantined=False)
                else:
                    logger.warning("vectors of the index in %s remain at %s: remove them there", side, dense)
            finally:
                home.close()
        if lexical not in (None, LOCAL_LEXICAL):
            words = backends.lexical.home(side / "tantivy", store, manifest.embedder)
            try:
                if words.identity == lexical:
                    words.keep_only(0, quarantined=False)
                else:
                    logger.warning("texts of the index in %s remain at %s: remove them there", side, lexical)
            finally:
                words.close()
