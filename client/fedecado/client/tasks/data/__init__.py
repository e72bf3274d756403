"""Image data sets, read from a folder that the user names."""
