package prove

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

// BinaryVersion is the version that binaries from Build report.
const BinaryVersion = "prove"

var (
	built    = map[Variant]string{} // to the path of the binary
	buildDir string
	building sync.Mutex
)

// Variant is a way to build the binary.
type Variant struct {
	// Package is the program, such as internal/bench/cmd; empty: Punctual itself.
	Package string
	// Race builds with the race detector: a replica that saw a data race ends with exit code 66 when it stops, or before
	Race       bool
	Failpoints bool // the replica dies at the point that PUNCTUAL_FAILPOINT names
}

// plain is how the Makefile builds whatever has no race detector. What tests build in the same way is mostly compiled.
var plain = []string{"CGO_ENABLED=0", "GOFLAGS=-trimpath"}

// name returns the name of the binary's file.
func (v Variant) name() string {
	name := path.Join("punctual", v.Package)
	name = strings.ReplaceAll(name, "/", "-")
	if v.Race {
		name += "-race"
	}
	if v.Failpoints {
		name += "-failpoint"
	}
	return name
}

// Build builds the binary, once per process and variant, and returns its path.
func Build(ctx context.Context, v Variant) (file string, err error) {
	building.Lock()
	defer building.Unlock()
	if file, ok := built[v]; ok {
		return file, nil
	}
	if buildDir == "" {
		if buildDir, err = os.MkdirTemp("", "punctual-prove-"); err != nil {
			return "", err
		}
	}
	file = filepath.Join(buildDir, v.name())
	args := []string{"build", "-buildvcs=false", "-ldflags", "-w -X main.version=" + BinaryVersion}
	if v.Race {
		args = append(args, "-race")
	}
	if v.Failpoints {
		args = append(args, "-tags", "failpoint")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", file, path.Join("punctual", v.Package))...)
	if !v.Race {
		cmd.Env = append(os.Environ(), plain...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	built[v] = file
	return file, nil
}

// RemoveBinaries removes the binaries from Build. Call it when the process is about to end.
func RemoveBinaries() {
	building.Lock()
	defer building.Unlock()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	buildDir = ""
	clear(built)
}
