"""What eight other tools would print of the same marks, and why it differs."""
