"""What an index beside keeps outside its directory: on a Chroma server or in Chroma Cloud."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

from thresher.corpus.backends import Backends
from thresher.corpus.errors import CollectionDamaged, CollectionMismatch
from thresher.corpus.layout import open_record
from thresher.corpus.lexical.base import LexicalHome
from thresher.corpus.lexical.local import IDENTITY as LOCAL_LEXICAL
from thresher.corpus.lexical.managed import LEXICAL_HOME
from thresher.corpus.paths import CHROMA, TANTIVY
from thresher.corpus.record.collection_id import collection_id
from thresher.corpus.vectors.base import IndexHome
from thresher.corpus.vectors.local import IDENTITY as LOCAL_DENSE
from thresher.corpus.vectors.residence import DENSE_HOME

logger = logging.getLogger(__name__)


def forget_elsewhere(side: Path, backends: Backends) -> None:
    """Remove the generations of the collection in `side` that are not in its directory.

    What is at a place that `backends` does not name cannot be reached from here and is left, with a warning.

    Raises:
        IndexUnreachable: the place does not answer; nothing is to be removed here then.
    """
    manifest, store = open_record(side)
    with closing(store):
        dense, lexical = store.meta(DENSE_HOME), store.meta(LEXICAL_HOME)
        if dense not in (None, LOCAL_DENSE):
            vectors = backends.dense.home(side / CHROMA, collection_id(store))
            _empty(vectors, str(dense), f"vectors of the index in {side}")
        if lexical not in (None, LOCAL_LEXICAL):
            texts = backends.lexical.home(side / TANTIVY, store, manifest.embedder)
            _empty(texts, str(lexical), f"texts of the index in {side}")


def forget_before_removal(side: Path, backends: Backends) -> None:
    """`forget_elsewhere` for what is removed next: one whose record cannot be read is removed all the same.

    Raises:
        IndexUnreachable: as for `forget_elsewhere`.
    """
    try:
        forget_elsewhere(side, backends)
    except (CollectionDamaged, CollectionMismatch) as error:
        logger.warning("%s is removed unread, so nothing that it has on a server is (%s)", side, error)


def _empty(home: IndexHome | LexicalHome, recorded: str, what: str) -> None:
    """Remove every generation from a home, if it is the one that the record names."""
    with closing(home):
        if home.identity == recorded:
            home.keep_only(0, quarantined=False)
        else:
            logger.warning("%s remain at %s: remove them there", what, recorded)
