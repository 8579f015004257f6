"""What several programs share."""
