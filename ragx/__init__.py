"""ragx: RAG-Sequence and RAG-Token (Lewis et al. 2020) as a research codebase."""
