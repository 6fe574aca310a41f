"""The `chat` policy: messages and tool calls over `/v1/chat/completions`."""
