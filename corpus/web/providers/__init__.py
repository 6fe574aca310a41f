"""Search engines of the web behind one interface; `thresher.corpus.web.providers.table` has them by name."""
