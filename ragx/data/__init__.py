"""Corpora, tasks and batches (section 3)."""
