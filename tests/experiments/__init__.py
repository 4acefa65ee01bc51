"""Tests of ragx.experiments."""
