"""The parts of the commands of `onsoftmax`: files, streams, signals, and the longer commands."""
