"""Regular expressions over the whole corpus, with the help of its trigrams."""
