# docker build -t headrace . && docker run --rm -v "$PWD:/data" headrace run pipeline.yml --once --flush
FROM python:3.12-slim AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.12-slim
# Spark needs Java, and `ps` to watch the memory of its workers.
RUN apt-get update \
    && apt-get install -y --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /tmp/
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir --constraint /tmp/constraints.txt "$(echo /wheel/*.whl)[delta]"
# Spark starts in half the time.
RUN headrace prepare
# Pipelines, checkpoints and answers belong to whoever runs the image, not to root.
RUN useradd --create-home --uid 1000 headrace && mkdir /data && chown headrace /data
USER headrace
WORKDIR /data
ENTRYPOINT ["headrace"]
CMD ["--help"]
