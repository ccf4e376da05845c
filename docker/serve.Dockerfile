# The image of the endpoint: one ONNX body, the tables of many languages.
#
#   docker build -f docker/serve.Dockerfile -t ghcr.io/lingraft/serve:0.1.0 .
#
# For GPUs, add --build-arg ACCELERATOR=gpu; behind a mirror, add --secret id=pip,src=pip.conf
#
# The registry's client is in it, too, for the containers beside the server that bring bundles.
# ONNX Runtime does the work, on either kind of machine. lingraft depends on torch, which the server never imports, so it
# is always the CPU build.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS dependencies
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
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
ARG ACCELERATOR=cpu
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    touch README.md \
    && pip install --no-cache-dir --constraint constraints.txt ".[serving,tracking,${ACCELERATOR}]" \
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
LABEL org.opencontainers.image.title="lingraft serve" \
      org.opencontainers.image.description="Serves tasks in many languages over the Open Inference Protocol" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
RUN groupadd --gid 10001 lingraft \
    && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /tmp lingraft
COPY --from=dependencies /opt/venv /opt/venv
# onnxruntime-gpu looks for CUDA and cuDNN on the loader's path only; pip puts them here. Absent folders are ignored.
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/tmp \
    LD_LIBRARY_PATH=/opt/venv/lib/python3.11/site-packages/nvidia/cu13/lib:/opt/venv/lib/python3.11/site-packages/nvidia/cudnn/lib \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_VISIBLE_DEVICES=all \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN --mount=type=bind,from=project,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --no-index /wheels/*.whl
WORKDIR /tmp
USER 10001:10001
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/v2/health/ready', timeout=2)"]
ENTRYPOINT ["lingraft", "serve"]
CMD ["/bundle", "--port=8080"]
