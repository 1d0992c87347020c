# abreast as a command. It runs what is in its image: build on this one, and add the programs that you map.
#
#   docker build -t abreast .
#   seq 3 | docker run --rm -i --init -v "$PWD:/work" --user "$(id -u):$(id -g)" abreast map -- echo {}

FROM python:3.11-slim AS build
COPY requirements/image.txt /build/requirements/
RUN python -m venv /opt/abreast \
 && /opt/abreast/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r /build/requirements/image.txt
COPY pyproject.toml README.md LICENSE /build/
COPY src /build/src
# The build backend stays in this stage.
RUN /opt/abreast/bin/pip install --no-cache-dir --no-deps /build

FROM python:3.11-slim
COPY --from=build /opt/abreast /opt/abreast
ENV PATH=/opt/abreast/bin:$PATH
RUN useradd --create-home --uid 1000 abreast && install --directory --owner abreast /work
USER abreast
WORKDIR /work
ENTRYPOINT ["abreast"]
CMD ["--help"]
