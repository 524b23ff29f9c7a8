"""One open choice of the paper changed at a time: none brings the gain that it reports."""
