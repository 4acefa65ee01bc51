"""Tests of ragx.citations.judges."""
