"""What a step does: model, sharding and work to the ordered operator list. Pure arithmetic: no files, no device, no console."""
