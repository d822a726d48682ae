"""Pages to look at: the report in one file, and the same pages for the viewer and for comparisons."""
