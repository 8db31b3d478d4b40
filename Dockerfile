# syntax=docker/dockerfile:1
# A static binary on an empty image: no shell, no libc, no user but one without rights.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/queuebox-server ./cmd/queuebox-server
# The working directory of the default SQLite file. It is made here, because an empty
# image has no tool that could give it to a user.
RUN mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/queuebox-server /usr/local/bin/queuebox-server
COPY --from=build --chown=65532:65532 /out/data /var/lib/queuebox
USER 65532:65532
WORKDIR /var/lib/queuebox
VOLUME /var/lib/queuebox
EXPOSE 7420 7421
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s CMD ["/usr/local/bin/queuebox-server", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/queuebox-server"]
