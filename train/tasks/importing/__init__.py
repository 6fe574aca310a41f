"""Sets of questions in other people's formats, made ours: the tasks, and the documents that their gold ids name."""
