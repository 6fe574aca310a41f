"""Collections and documents as clients see them, and looking into them without a policy."""
