"""Tests of ragx.evaluation."""
