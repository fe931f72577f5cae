"""What makes commits last: the redo log, checkpoints, and recovery after a crash."""
