package privatepg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MinVersion is the oldest major version of Postgres that Punctual runs on.
const MinVersion = 15

// places lists where packages put the server binaries. Most packages keep them out of PATH.
var places = []string{
	"/usr/lib/postgresql/*/bin",                      // Debian, Ubuntu
	"/usr/pgsql-*/bin",                               // RPMs of postgresql.org
	"/usr/lib/postgresql*/bin",                       // SUSE
	"/usr/libexec/postgresql*",                       // Alpine
	"/opt/homebrew/opt/postgresql*/bin",              // Homebrew on Apple silicon
	"/usr/local/opt/postgresql*/bin",                 // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin", // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/opt/local/lib/postgresql*/bin", // MacPorts
	"/usr/local/pgsql/bin",           // built from source
}

// installation is one set of server binaries.
type installation struct {
	dir     string
	version int // major
}

// chooseBinaries returns the binaries of the version that made pgdata, or the newest if there is no pgdata yet.
func chooseBinaries(pgdata string) (installation, error) {
	madeBy, err := dataVersion(pgdata)
	if err != nil {
		return installation{}, err
	}
	found := installations()
	for _, in := range found {
		if in.version >= MinVersion && (madeBy == 0 || in.version == madeBy) {
			return in, nil
		}
	}
	return installation{}, notFound(pgdata, madeBy, found)
}

// notFound says that the machine has no usable Postgres server, where Start looked, and what to install. Only version
// fits; 0: any from MinVersion.
func notFound(pgdata string, version int, found []installation) error {
	var b strings.Builder
	if version == 0 {
		fmt.Fprintf(&b, "no Postgres server (version %d or newer) on this machine", MinVersion)
	} else {
		fmt.Fprintf(&b, "%s was made by Postgres %d, which is not on this machine", pgdata, version)
	}
	for _, in := range found {
		fmt.Fprintf(&b, "\n  found, but of the wrong version: %s (%d)", in.dir, in.version)
	}
	fmt.Fprintf(&b, "\n  looked in: PATH, %s", strings.Join(places, ", "))
	b.WriteString("\n  install it with one of:" +
		"\n    apt-get install postgresql         (Debian, Ubuntu)" +
		"\n    dnf install postgresql-server      (Fedora, RHEL)" +
		"\n    brew install postgresql@17         (macOS)" +
		"\n  or put the directory that holds postgres and initdb on PATH")
	return errors.New(b.String())
}

// installations lists the servers of the machine, newest first, that are on PATH or where the packages of Debian, RPM,
// SUSE and Alpine distributions, Homebrew, MacPorts and Postgres.app install. In a tie, PATH wins.
func installations() []installation {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range places {
		matches, _ := filepath.Glob(pattern) // fails only for a bad pattern
		dirs = append(dirs, matches...)
	}
	var all []installation
	for _, dir := range dirs {
		if in, err := inspect(dir); err == nil && !slices.Contains(all, in) {
			all = append(all, in)
		}
	}
	slices.SortStableFunc(all, func(a, b installation) int { return b.version - a.version })
	return all
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect asks the binaries in dir for their version. If dir only links to postgres, as a bin directory on PATH does,
// inspect follows the link to the directory that also has initdb.
func inspect(dir string) (installation, error) {
	postgres, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return installation{}, fmt.Errorf("look for postgres: %w", err)
	}
	in := installation{dir: filepath.Dir(postgres)}
	if _, err := os.Stat(filepath.Join(in.dir, "initdb")); err != nil {
		return in, fmt.Errorf("look for initdb: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, postgres, "--version").Output()
	if err != nil {
		return in, fmt.Errorf("ask %s for its version: %w", postgres, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return in, fmt.Errorf("ask %s for its version: answered %q", postgres, out)
	}
	in.version, err = strconv.Atoi(string(m[1]))
	return in, err
}

// dataVersion returns the major version that made pgdata; 0 if there is no pgdata yet.
func dataVersion(pgdata string) (int, error) {
	text, err := os.ReadFile(filepath.Join(pgdata, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data directory: %w", err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the data directory %s: %w", pgdata, err)
	}
	return v, nil
}
