"""Time and memory of ragx beside transformers' RAG classes and raw FAISS: same weights, inputs and results."""
