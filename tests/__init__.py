"""Tests of ragx; the folders mirror the package."""
