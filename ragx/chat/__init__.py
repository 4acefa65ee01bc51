"""Zero-shot RAG: a chat model of others behind an OpenAI-compatible endpoint in place of our generator."""
