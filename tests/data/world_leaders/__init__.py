"""Tests of the embedded knowledge base."""
