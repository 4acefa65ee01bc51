"""The retriever, section 2.2: query and passage encoders, the frozen index and its passages, BM25."""
