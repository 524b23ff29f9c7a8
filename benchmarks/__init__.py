"""Speed and memory, as ratios against peers and limits measured in the same run."""
