"""The builtin policy's own learning: its choices scored by a small model, trained by the same rewards."""
