"""What is measured of a list of documents or an answer, as pure functions."""
