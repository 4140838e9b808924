"""What there is to measure, as data: needs neither torch nor a device."""
