# syntax=docker/dockerfile:1
# prefixgate: one binary on a small base, run by a user without rights.
#
#   docker build -t prefixgate .
#   docker run -p 127.0.0.1:8787:8787 -v prefixgate:/var/lib/prefixgate prefixgate
#
# This file is linted by hadolint in tests/run and its commands are run against the real binary by
# tests/it/docker.rs; no container engine builds it there.

FROM rust:1.95-slim-bookworm AS build
# For jemalloc.
RUN apt-get update \
    && apt-get install -y --no-install-recommends make=4.* \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY Cargo.toml Cargo.lock ./
COPY .cargo ./.cargo
COPY src ./src
COPY config ./config
# The functions that are run stand beside each other (tests/bench/order), where the compiler brings
# a linker that can do so.
RUN if [ "$(uname -m)" = x86_64 ]; then \
        set -- -C "link-arg=-Wl,--symbol-ordering-file=$PWD/config/functions.order" \
            -C link-arg=-Wl,--no-warn-symbol-ordering; \
    fi \
    && cargo rustc --profile dist --locked --bin prefixgate -- "$@" \
    && install -D target/dist/prefixgate /out/prefixgate \
    && install -d -o 65532 -g 65532 /out/data

FROM debian:12-slim
RUN useradd --system --uid 65532 --no-create-home --shell /usr/sbin/nologin prefixgate
COPY --from=build /out/prefixgate /usr/local/bin/prefixgate
COPY --from=build --chown=65532:65532 /out/data /var/lib/prefixgate
USER 65532:65532
# Read by every subcommand, the health check too. Metrics stay inside of the container unless
# PREFIXGATE_ADMIN says otherwise.
ENV PREFIXGATE_LISTEN=0.0.0.0:8787 \
    PREFIXGATE_ADMIN=127.0.0.1:8788 \
    PREFIXGATE_DATA_DIR=/var/lib/prefixgate
VOLUME ["/var/lib/prefixgate"]
EXPOSE 8787
HEALTHCHECK --interval=15s --timeout=3s --start-period=5s --retries=3 \
    CMD ["/usr/local/bin/prefixgate", "doctor", "--ready"]
ENTRYPOINT ["/usr/local/bin/prefixgate"]
CMD ["serve"]
