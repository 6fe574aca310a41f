"""What a search earns: facts about it, terms made of facts, profiles that weigh terms."""
