# gnnscale on NVIDIA GPUs. From the root of a clone, with the NVIDIA container toolkit on the host:
#
#   docker build -f docker/cuda.Dockerfile -t gnnscale-cuda .
#   docker run --rm --gpus all --shm-size=8g -v "$PWD":/work -w /work gnnscale-cuda \
#       train device_plan=cuda output=run
#
# No image of CUDA is needed: torch and cuda-bindings bring its libraries and NVRTC, and the host has
# the driver.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
RUN pip install --no-cache-dir -c /wheels/constraints.txt "$(ls /wheels/*.whl)[cuda]"
RUN useradd --create-home user
USER user
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["gnnscale"]
