"""What an operator watches: metrics, spans, and whether the server can do its work."""
