"""Tests of ragx.data."""
