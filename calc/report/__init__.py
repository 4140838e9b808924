"""What people see: takes result records, knows no physics."""
