"""What a training does beside its loop: every callback is one behaviour of it, switched on by passing it."""
