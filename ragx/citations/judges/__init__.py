"""Judges of support, one module each: frozen labels, exact span, constraints, lexical, entailment, composite."""
