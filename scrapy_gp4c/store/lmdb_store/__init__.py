"""The store: one LMDB file that survives a kill at any moment; only this package opens transactions."""
