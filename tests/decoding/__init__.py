"""Tests of ragx.decoding against enumeration and fixtures worked out by hand."""
