"""Jobs: operations that take long, run in the background, remembered, and run again after a restart."""
