"""The control socket: how a command reaches the server that has its collection open.

A server listens on a unix socket besides its TCP port. Only the same user may use it (mode 0600, and the kernel's word
on who is at the other end). `rundir` is where servers announce their sockets, `server` answers, `client` asks.

A call is one HTTP request, `POST /operations`; its answer is a stream of JSON lines: any number of
`{"progress": {"kind", "data"}}` and `{"alive": true}`, then one `{"result": {…}}` or `{"error": {…}}`.
`POST /operations/ID/cancel` asks a running one to stop; a client that goes away does the same.
"""

PROTOCOL = 1
"""Version of the conversation. Both ends must agree on it and on the release of thresher."""
