"""One page about any number of runs, and the same tables as Markdown, from the files the runs left."""
