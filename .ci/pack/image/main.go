// Image writes the container image of a release: an OCI layout, with one image for each architecture, from binaries that
// are built already. It needs no container engine, and equal input gives equal bytes.
//
//	image -version v0.1.0 -revision COMMIT -epoch SECONDS -out DIR amd64=FILE arm64=FILE
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"flag"
	"io"
	"log"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

var (
	version  = flag.String("version", "", "version of the release")
	revision = flag.String("revision", "", "commit that the binaries were built from")
	epoch    = flag.Int64("epoch", 0, "time of everything in the image, in seconds since 1970")
	out      = flag.String("out", "", "directory to write the layout into")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(binaries []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, binary := range binaries {
		architecture, path, _ := strings.Cut(binary, "=")
		image, err := build(architecture, path)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}})
	}
	index = mutate.Annotations(index, labels()).(v1.ImageIndex)
	// The layout names the index of the platforms, as engines and registries expect it.
	name := strings.TrimPrefix(*version, "v")
	top, err := layout.Write(*out, empty.Index)
	if err != nil {
		return err
	}
	return top.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": name, // read by podman and skopeo
		"io.containerd.image.name":          "docker.io/library/punctual:" + name,
	}))
}

func labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "Punctual",
		"org.opencontainers.image.description": "Cron as a service on the Postgres you already have",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     *version,
		"org.opencontainers.image.revision":    *revision,
		"org.opencontainers.image.created":     time.Unix(*epoch, 0).UTC().Format(time.RFC3339),
	}
}

// build makes the image of one architecture. What it is to run as, the Dockerfile says in the same way.
func build(architecture, path string) (v1.Image, error) {
	content, err := files(path)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: time.Unix(*epoch, 0).UTC()}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{
		Architecture: architecture, OS: "linux", Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         "65532:65532",
			Env:          []string{"PUNCTUAL_LISTEN=0.0.0.0:8080"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			Entrypoint:   []string{"/punctual"},
			Cmd:          []string{"serve"},
			Labels:       labels(),
			Healthcheck: &v1.HealthConfig{
				Test:     []string{"CMD", "/punctual", "healthcheck"},
				Interval: 5 * time.Second, Timeout: 4 * time.Second, StartPeriod: 30 * time.Second, Retries: 3,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: created, CreatedBy: "punctual " + *version},
	})
}

// files returns the root file system as a tar archive: the binary, the licence, and whom TLS trusts. The authorities are
// Mozilla's, from a Go module, so that they do not depend on the machine that builds.
func files(binary string) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/"} {
		if err := add(w, dir, 0o755, nil); err != nil {
			return nil, err
		}
	}
	var trusted bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // it is trusted under a condition, which a file cannot express
		}
		_ = pem.Encode(&trusted, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
	}
	if err := add(w, "etc/ssl/certs/ca-certificates.crt", 0o644, trusted.Bytes()); err != nil {
		return nil, err
	}
	for _, file := range []struct {
		name, from string
		mode       int64
	}{{"LICENSE", "LICENSE", 0o644}, {"NOTICE", "NOTICE", 0o644}, {"punctual", binary, 0o755}} {
		content, err := os.ReadFile(file.from)
		if err != nil {
			return nil, err
		}
		if err := add(w, file.name, file.mode, content); err != nil {
			return nil, err
		}
	}
	err := w.Close() // writes the end of the archive
	return archive.Bytes(), err
}

func add(w *tar.Writer, name string, mode int64, content []byte) error {
	err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(*epoch, 0)})
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
