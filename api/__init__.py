"""The faces of the engine: settings, the command line and the HTTP API."""
