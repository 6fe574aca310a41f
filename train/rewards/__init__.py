"""What a search earns: facts about it, terms made of facts, profiles that weigh terms."""

from thresher.train.rewards.facts import Facts, facts_of
from thresher.train.rewards.profiles import DEFAULT_PROFILE, PROFILES, ProfileError, RewardProfile, load_profile
from thresher.train.rewards.reward import Reward, reward_of
from thresher.train.rewards.scorer import Naming, Scorer, scorer_for

__all__ = [
    "DEFAULT_PROFILE",
    "PROFILES",
    "Facts",
    "Naming",
    "ProfileError",
    "Reward",
    "RewardProfile",
    "Scorer",
    "facts_of",
    "load_profile",
    "reward_of",
    "scorer_for",
]
