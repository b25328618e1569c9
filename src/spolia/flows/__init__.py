"""Published methods, one file each, named and cited."""
