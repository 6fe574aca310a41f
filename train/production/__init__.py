"""What a server keeps of its searches to learn from: the format, what is taken out of it, and how users' acts are read.

Nothing of a server is in here: `thresher.api.service.collecting` writes, `thresher.train.loop` reads.
"""
