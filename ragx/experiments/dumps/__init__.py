"""Index hot swap between two dated dumps of real text (section 4.5): what is found, answered and cited from each."""
