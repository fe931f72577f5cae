"""This process: signals, finalizers, forks, and directories that no other user can change."""
