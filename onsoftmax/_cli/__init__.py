"""What the commands of `onsoftmax` are made of: files, streams, signals, and the longer commands."""
