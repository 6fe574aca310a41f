"""Documents from the web: addresses, polite fetching, and what a page is read as."""
