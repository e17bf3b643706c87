# One image with both programs: /usr/local/bin/controller and /usr/local/bin/speaker.
#
# With an ordinary engine: docker build --tag localhost/fairlead:dev .
# Without a registry, `make image` builds the same last stage from what it has
# made on this machine, in place of the two stages before it.

FROM docker.io/library/golang:1.26-bookworm AS programs
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build BIN=/out VERSION="$VERSION" && scripts/licences /out/controller /out/speaker >/out/licences.txt

FROM docker.io/library/debian:bookworm-slim AS rootfs
RUN apt-get update && apt-get install --yes --no-install-recommends mmdebstrap
COPY scripts/image-rootfs scripts/image-packages /scripts/
RUN /scripts/image-rootfs /rootfs

FROM scratch
LABEL org.opencontainers.image.title="Fairlead" \
      org.opencontainers.image.description="Bare-metal load balancer and service proxy for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=rootfs /rootfs/ /
COPY --from=programs /out/controller /out/speaker /usr/local/bin/
COPY --from=programs /out/licences.txt /usr/share/doc/fairlead/
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin
# The controller's user; the speaker's pod asks for root by itself.
USER 65532:65532
