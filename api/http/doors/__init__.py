"""Endpoints in the shapes that other clients already speak, so that they need only another base URL.

| client | base URL | module |
|---|---|---|
| OpenAI (chat, models, vector stores) | `http://HOST:8420/v1` | `chat`, `models`, `vector_stores` |
| Tavily | `http://HOST:8420/tavily` | `tavily` |
| Perplexity | `http://HOST:8420/perplexity` | `perplexity` |
| Cohere (rerank) | `http://HOST:8420` | `cohere` |

Rules that all of them keep:
- The key is the server's own, sent as the client sends it (`Authorization: Bearer …`). A server that is open to its own
  machine takes whatever a client must send, as long as it does not begin like a key of the server (`th_`).
- A field that the client's service does not know either, or that means nothing here, is ignored; a field of the wrong
  type is an error; a field that would change the results and cannot be honoured is refused, never ignored.
- `thresher`, an object in the body, says what the client's own fields cannot: collections, filters, effort, deadline.
  Answers carry `thresher` as well: the account of the search, with `outcome` `found`, `insufficient`,
  `nothing_found` or `incomplete`. A search that could not be run is an error (502, 503, …), never an empty result.
- Errors have the project's one shape; what the client reads stands beside it (`errors`).
"""
