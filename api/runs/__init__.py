"""Training runs for people: as text in a terminal, as JSON, and as a page that loads nothing."""
