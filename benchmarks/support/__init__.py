"""What the scripts of this folder stand on: no figures of its own."""
