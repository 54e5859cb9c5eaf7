"""Consumer groups and share groups, as their coordinators see them."""
