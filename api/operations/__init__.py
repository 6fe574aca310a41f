"""What can be done to a collection, once for every face: the command line runs operations itself or has a server do it.

An operation takes a typed request and a `Target` (the collection, wherever it is open) and returns a document that can
be written as JSON. `table.operation` finds one by its name; `local.LocalTarget` is a target in this process.
"""
