# syntax=docker/dockerfile:1

# Built on the machine's own platform for whatever platform is asked for: Go cross-compiles, emulation would take minutes.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=$(git describe --tags) -t punctual .
FROM --platform=$BUILDPLATFORM node:22 AS assets
WORKDIR /npm
COPY httpapi/dashboard/npm ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download
COPY . .
COPY --from=assets /npm/node_modules/htmx.org/dist/htmx.min.js httpapi/dashboard/assets/vendor/
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -buildvcs=false -trimpath \
    -ldflags "-s -w -X main.version=${VERSION}" -o /punctual .

# Nothing but the binary: no shell, nothing to write to. It runs with --read-only --cap-drop=ALL --security-opt=no-new-privileges.
FROM scratch
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Punctual" \
      org.opencontainers.image.description="Cron as a service on the Postgres you already have" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY LICENSE NOTICE /
COPY --from=build /punctual /
# Where serve listens, and healthcheck asks.
ENV PUNCTUAL_LISTEN=0.0.0.0:8080
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 CMD ["/punctual", "healthcheck"]
ENTRYPOINT ["/punctual"]
CMD ["serve"]
