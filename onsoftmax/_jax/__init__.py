"""What onsoftmax.jax is made of."""
