"""The embedded knowledge base: who led which country when, as dated editions of a reference work with questions."""
