"""Tests of ragx.generator against transformers and against plain forms of the same numbers."""
