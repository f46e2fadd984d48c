"""The parts of onsoftmax.jax."""
