"""From a release to the policy that it is: what it names goes before what is configured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thresher.train.loop.releases import CONFIGURED

if TYPE_CHECKING:
    from thresher.api.policies import PolicyChoice
    from thresher.train.loop.releases import Release


def choice_of(release: Release, configured: PolicyChoice) -> PolicyChoice:
    """How a release's policy is made. The release `configured` is what is configured now."""
    if release.id == CONFIGURED:
        return configured
    return replace(
        configured,
        spec=release.policy,
        profile=release.profile or configured.profile,
        url=release.url or configured.url,
    )
