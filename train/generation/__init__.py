"""Tasks made from a collection's own passages: explored, composed, verified, each with its evidence."""
