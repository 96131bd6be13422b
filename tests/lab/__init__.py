"""Tests of transformer_lab."""
