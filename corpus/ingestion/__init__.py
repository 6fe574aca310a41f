"""From files, pages and records to stored, searchable documents."""
