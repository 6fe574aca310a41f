"""The page at `/ui`: static files, no build step."""
