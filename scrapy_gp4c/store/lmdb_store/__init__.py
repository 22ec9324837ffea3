"""The store in one LMDB file that survives a kill at any moment; nobody else sees a transaction."""
