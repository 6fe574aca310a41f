"""An evaluation's data as a report: Markdown, one HTML file, and pictures. Pure functions of `Evaluation.as_dict()`."""
