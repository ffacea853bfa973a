"""Records of the core as messages of the wire, and back."""
