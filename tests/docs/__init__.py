"""The documentation holds: examples, links, names, generated pages."""
