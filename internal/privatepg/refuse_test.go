package privatepg

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecondOwnerIsToldWhoTheFirstIs(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	start(t, Config{Dir: dir, Fast: true})
	_, err := Start(t.Context(), Config{Dir: dir})
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("error is %v, want one that names process %d", err, os.Getpid())
	}
}

func TestDirectoryWithOtherFilesIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600))
	before, err := os.Stat(dir)
	must(t, err)
	_, err = Start(t.Context(), Config{Dir: dir, Ephemeral: true})
	if err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("error is %v", err)
	}
	after, err := os.Stat(dir)
	must(t, err)
	uid, _ := owner(before)
	if got, _ := owner(after); got != uid || after.Mode() != before.Mode() {
		t.Error("the directory has changed hands")
	}
}

func TestRootIsToldWhichDirectoryBarsTheWay(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("not root: no other user, so nothing is in its way")
		return
	}
	private := newDir(t) // its mode is 0700, its owner root
	_, err := Start(t.Context(), Config{Dir: filepath.Join(private, "data"), Fast: true})
	if err == nil || !strings.Contains(err.Error(), private+" (mode 0700)") {
		t.Errorf("error is %v, want it to name %s", err, private)
	}
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Log("root: no directory is foreign")
		return
	}
	_, err := Start(t.Context(), Config{Dir: "/etc"})
	if err == nil || !strings.Contains(err.Error(), "belongs to root") {
		t.Errorf("error is %v", err)
	}
}

func TestMissingPostgresSaysWhereAndWhat(t *testing.T) {
	t.Setenv("PATH", "")
	saved := places
	places = []string{filepath.Join(t.TempDir(), "pgsql-*", "bin")}
	t.Cleanup(func() { places = saved })

	dir := filepath.Join(t.TempDir(), "data")
	_, err := Start(t.Context(), Config{Dir: dir})
	if err == nil {
		t.Fatal("it started without Postgres")
	}
	for _, want := range []string{
		places[0], "version 15", "apt-get install postgresql",
		"dnf install postgresql-server", "brew install postgresql",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message does not say %q:\n%v", want, err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("an empty directory is left behind")
	}
}

func TestBinariesFollowTheDataAndNothingOlderThanTheMinimum(t *testing.T) {
	root := t.TempDir()
	t.Setenv("PATH", "/usr/bin:/bin")
	saved := places
	places = []string{filepath.Join(root, "*")}
	t.Cleanup(func() { places = saved })
	for _, v := range []string{"9.6.24", "13.2", "16.4", "18beta1"} {
		fakeServer(t, filepath.Join(root, v), v)
	}
	for _, tc := range []struct {
		name, dataVersion string
		want              int // 0: an error
	}{
		{"the newest for new data", "", 18},
		{"the same version for existing data", "16\n", 16},
		{"none in place of the missing version", "17\n", 0},
		{"none below the minimum", "13\n", 0},
	} {
		pgdata := t.TempDir()
		if tc.dataVersion != "" {
			must(t, os.WriteFile(filepath.Join(pgdata, "PG_VERSION"), []byte(tc.dataVersion), 0o600))
		}
		got, err := chooseBinaries(pgdata)
		if got.version != tc.want || (err == nil) != (tc.want != 0) {
			t.Errorf("%s: version %d, error %v", tc.name, got.version, err)
		}
	}
}

// fakeServer makes binaries that can only print their version.
func fakeServer(t *testing.T, dir, version string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	for _, name := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho '" + name + " (PostgreSQL) " + version + "'\n"
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
}
