"""What memory is in use now: readings of devices, of this process's allocators and of the host; microseconds each."""
