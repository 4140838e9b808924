"""From runs to laws: efficiency profiles, a profile of a device that has none, the laws of links."""
