"""What the families share: how attention, feed-forward parts, experts, recurrent mixers and patterns are written in configs."""
