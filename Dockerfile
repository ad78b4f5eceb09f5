# The operator's image: one static binary on a base without shell or package manager.
#
#   docker build -t glance-operator .
#   docker buildx build --platform linux/amd64,linux/arm64 -t glance-operator .
#
# Release builds pass both images with their digests (--build-arg BUILD_IMAGE=rust:1.95.0-alpine@sha256:…, and BASE_IMAGE in the
# same way), and CREATED, REVISION, VERSION and SOURCE.
ARG BUILD_IMAGE=rust:1.95.0-alpine
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

# Alpine's own target is musl, which links statically without a second toolchain. A glibc binary
# cannot be static here: its resolver loads libraries at run time.
FROM ${BUILD_IMAGE} AS build
# For the list of what the binary is made of.
RUN apk add --no-cache python3
WORKDIR /src
# Without rust-toolchain.toml (see .dockerignore): the image is the toolchain, and the file would fetch lints.
COPY . .
# What the log and glance_operator_build_info say; the label below is for people.
ARG REVISION=""
# The same script as in .ci/run, which checks size and linkage: from any folder the same tools give the same bytes.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    binary=$(GLANCE_OPERATOR_REVISION=$REVISION .ci/binary) && cp "$binary" /manager && .ci/notices /notices && cp LICENSE /notices/

# Brings the CA bundle (a registration without inline CA data is verified against it), time zones and
# /tmp. The binary writes nothing, so the root file system can be read-only.
FROM ${BASE_IMAGE}
ARG CREATED="" REVISION="" VERSION="" SOURCE="https://github.com/c5c3/glance-operator"
LABEL org.opencontainers.image.title="glance-operator" \
      org.opencontainers.image.description="Runs OpenStack Glance on many Kubernetes clusters from one hub" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="c5c3" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.url="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /manager /manager
# Bill of materials and licences of everything that is linked in.
COPY --from=build /notices /usr/share/doc/glance-operator
WORKDIR /
USER 65532:65532
EXPOSE 8080 8081 9443
ENTRYPOINT ["/manager"]
