"""Questions with what is known of their answers: reading, importing, splitting, and whether they fit."""
