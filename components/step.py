"""The one decorator of all components: lightweight Python whose image carries lingraft, kfp and all else."""

import functools

from kfp import dsl

from lingraft.config.cluster import Cluster

IMAGE = Cluster.model_fields["image"].default
"""Image of a component until a pipeline sets its recipe's."""

step = functools.partial(dsl.component, base_image=IMAGE, install_kfp_package=False)
