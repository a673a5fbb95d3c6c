"""What developers of this project run."""
