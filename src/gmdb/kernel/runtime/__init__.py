"""What all kernels are made with: the compiler and its cache, memory, statuses."""
