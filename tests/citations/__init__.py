"""Tests of ragx.citations."""
