# syntax=docker/dockerfile:1
# prefixgate: one static-ish binary on a small base, run by a user without rights.
#
#   docker build -t prefixgate .
#   docker run -p 8787:8787 -p 127.0.0.1:8788:8788 -v prefixgate:/var/lib/prefixgate prefixgate
#
# This file is linted by hadolint in tests/run and its commands are run against the real binary by
# tests/it/docker.rs; no container engine builds it there.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /build
# SQLite and zstd are compiled from C; the slim image has the compiler that Rust links with.
COPY Cargo.toml Cargo.lock ./
COPY src ./src
COPY config ./config
RUN cargo build --release --locked --bin prefixgate \
    && install -D target/release/prefixgate /out/prefixgate \
    && install -d -o 65532 -g 65532 /out/data

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/prefixgate /usr/local/bin/prefixgate
COPY --from=build --chown=65532:65532 /out/data /var/lib/prefixgate
USER 65532:65532
VOLUME ["/var/lib/prefixgate"]
EXPOSE 8787 8788
# The program's own question to its admin listener: the base has no shell and no curl.
HEALTHCHECK --interval=15s --timeout=3s --start-period=5s --retries=3 \
    CMD ["/usr/local/bin/prefixgate", "doctor", "--gateway", "http://127.0.0.1:8788", "--quiet"]
ENTRYPOINT ["/usr/local/bin/prefixgate"]
CMD ["serve", "--listen", "0.0.0.0:8787", "--admin", "127.0.0.1:8788", "--data-dir", "/var/lib/prefixgate"]
