# The image of every pipeline step: training, evaluation, export.
#
#   docker build -f docker/train.Dockerfile -t ghcr.io/lingraft/train:0.1.0 .
#
# For machines without a GPU, add --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Behind a mirror, add --secret id=pip,src=pip.conf
#
# The base is plain Python, not nvidia/cuda: torch's wheels bring the CUDA libraries that they were built with, at exactly
# the versions that they name, and the driver comes from the node. A CUDA base would hold the same gigabytes twice, and
# has no Python 3.11.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS dependencies
ARG TORCH_INDEX=
# For the tools that build the wheel, pip reads constraints from the environment only.
ENV PATH=/opt/venv/bin:$PATH \
    PIP_CONSTRAINT=/build/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY constraints.txt ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m venv /opt/venv \
    && pip install --no-cache-dir --constraint constraints.txt --no-deps \
        ${TORCH_INDEX:+--extra-index-url "${TORCH_INDEX}"} torch
# The version file alone, and an empty README, so that this layer stays while the sources change.
COPY pyproject.toml LICENSE ./
COPY lingraft/_version.py lingraft/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    touch README.md \
    && pip install --no-cache-dir --constraint constraints.txt '.[pipelines,kubernetes,tracking,search,postgresql,data,s3,gcs,azure,report,export,cpu]' \
    && pip uninstall --yes lingraft

FROM dependencies AS project
COPY README.md ./
COPY lingraft lingraft
COPY components components
COPY pipelines pipelines
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${BASE_IMAGE}
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lingraft train" \
      org.opencontainers.image.description="Trains, evaluates and exports: every step of lingraft's pipelines" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
# MLflow asks for a user's name, so the user has one. There is no git here, and MLflow need not say so in every step.
RUN groupadd --gid 10001 lingraft \
    && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /tmp lingraft
COPY --from=dependencies /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/tmp \
    GIT_PYTHON_REFRESH=quiet \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_VISIBLE_DEVICES=all \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN --mount=type=bind,from=project,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --no-index /wheels/*.whl
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["lingraft"]
CMD ["--help"]
