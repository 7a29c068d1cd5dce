# gnnscale on the processor. From the root of a clone:
#
#   docker build -f docker/cpu.Dockerfile -t gnnscale .
#   docker run --rm --shm-size=8g -v "$PWD":/work -w /work gnnscale train output=run
#
# The wheel is built in an image with a compiler, and installed in one without.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
# libgomp: OpenMP of scipy and of METIS. libstdc++ is that of the extension.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
# torch for processors: the default index has one with 3 GB of CUDA libraries.
RUN pip install --no-cache-dir -c /wheels/constraints.txt torch \
    --index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir -c /wheels/constraints.txt /wheels/*.whl
RUN useradd --create-home user
USER user
ENTRYPOINT ["gnnscale"]
