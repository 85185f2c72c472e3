# syntax=docker/dockerfile:1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -buildvcs=false -trimpath \
    -ldflags "-s -w -X main.version=${VERSION}" -o /punctual .

# Nothing but the binary: no shell, nothing to write to. It runs with --read-only --cap-drop=ALL --security-opt=no-new-privileges.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY LICENSE /
COPY --from=build /punctual /
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/punctual"]
CMD ["serve"]
