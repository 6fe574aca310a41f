"""What happens to a collection as a whole: reindex, export, snapshot, erase, verify."""
