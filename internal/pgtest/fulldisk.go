package pgtest

import (
	"cmp"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/fulldisk.c
var fullDiskSource []byte

// Disk is a disk that tests can fill. The server that has Env in its environment uses it.
type Disk struct {
	Env  []string // for privatepg.Config
	t    testing.TB
	flag string
}

// The parts of a server's data that can run out of space.
const (
	Tables = "base"   // statements fail
	WAL    = "pg_wal" // Postgres panics
)

// NewDisk compiles the library that Env preloads, with gcc or $CC, and returns a disk that has room.
func NewDisk(t testing.TB) *Disk {
	t.Helper()
	library := compile(t, "fulldisk", fullDiskSource)
	flag := filepath.Join(filepath.Dir(library), "full")
	return &Disk{t: t, flag: flag, Env: []string{"LD_PRELOAD=" + library, "FULL_DISK=" + flag}}
}

// compile compiles a library for LD_PRELOAD, in a directory that the user of Postgres may enter.
func compile(t testing.TB, name string, text []byte) (library string) {
	t.Helper()
	dir := openDir(t)
	library, source := filepath.Join(dir, name+".so"), filepath.Join(dir, name+".c")
	if err := os.WriteFile(source, text, 0o600); err != nil {
		t.Fatalf("compile %s: %v", name, err)
	}
	compiler := cmp.Or(os.Getenv("CC"), "gcc")
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", library, source,
		"-ldl").CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v; this test needs gcc: apt-get install gcc libc6-dev\n%s", name, err, out)
	}
	return library
}

// Fill keeps the files of a part from growing.
func (d *Disk) Fill(part string) {
	d.t.Helper()
	if err := os.WriteFile(d.flag+"."+part, nil, 0o600); err != nil {
		d.t.Fatalf("fill the disk: %v", err)
	}
}

// Clear makes room again.
func (d *Disk) Clear() {
	d.t.Helper()
	for _, part := range []string{Tables, WAL} {
		if err := os.RemoveAll(d.flag + "." + part); err != nil {
			d.t.Fatalf("clear the disk: %v", err)
		}
	}
}

// openDir returns a directory for the test that the user of Postgres may enter, unlike t.TempDir.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "punctual-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // see above
	}
	if err != nil {
		t.Fatalf("make a directory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
