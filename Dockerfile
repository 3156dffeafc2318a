# The image of all workers and commands; compose.yaml and the Helm chart use it.
#   docker build --build-arg VERSION=0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) --tag eventbus .
# It runs as user 10001 and needs a writable file system only for what a command is told to write, such as --token-file.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
USER root
WORKDIR /src
RUN python3 -m venv /opt/eventbus && python3 -m venv /build
COPY constraints-runtime.txt .ci/release-tools.txt ./
RUN /opt/eventbus/bin/python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r constraints-runtime.txt
RUN /build/bin/python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r release-tools.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY eventbus eventbus
COPY workers workers
ARG VERSION=0.0.0
ARG COMMIT=
RUN SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION} EVENTBUS_COMMIT=${COMMIT} /build/bin/python -m hatchling build -t wheel \
 && /opt/eventbus/bin/python -m pip install --no-cache-dir --no-deps dist/*.whl \
 && /opt/eventbus/bin/python -m pip uninstall --yes pip

FROM ${BASE}
USER root
RUN echo 'eventbus:x:10001:10001::/var/lib/eventbus:/usr/sbin/nologin' >> /etc/passwd && echo 'eventbus:x:10001:' >> /etc/group \
 && install -d -o 10001 -g 10001 -m 700 /var/lib/eventbus
COPY --from=build /opt/eventbus /opt/eventbus
ENV PATH=/opt/eventbus/bin:$PATH HOME=/var/lib/eventbus PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /var/lib/eventbus
USER 10001:10001
# of workers with --metrics-port 9108
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
  CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9108/livez', timeout=4)"]
CMD ["eventbus", "--help"]
