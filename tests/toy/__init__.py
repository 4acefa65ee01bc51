"""A world so small that every answer can be written down with its probability."""
