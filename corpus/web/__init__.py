"""The web as a second corpus: pages that a search fetches while it runs, from addresses that nobody here has chosen.

An address comes from a policy or from a page, so every connection goes only to an address that was checked (`guard`,
`connections`); pages are asked for politely (`robots`, `fetching`).
"""
