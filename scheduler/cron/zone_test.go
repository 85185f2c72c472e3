package cron

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestLoadZoneTakesExactNamesOnly(t *testing.T) {
	for _, name := range []string{
		"America/New_York", "Etc/GMT+5", "EST5EDT", "Asia/Calcutta", "America/Argentina/Buenos_Aires",
	} {
		zone, err := LoadZone(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if zone.String() != name {
			t.Errorf("LoadZone(%q) is called %q", name, zone)
		}
		if again, _ := LoadZone(name); again != zone {
			t.Errorf("%s: loaded twice", name)
		}
	}
	for _, name := range []string{"", "UTC"} {
		if zone, err := LoadZone(name); err != nil || zone != time.UTC {
			t.Errorf("LoadZone(%q) = %v, %v", name, zone, err)
		}
	}
	for name, reason := range map[string]string{
		"Local":                   "depends on the machine",
		"localtime":               "depends on the machine",
		"posixrules":              "depends on the machine",
		"LOCAL":                   "depends on the machine",
		"Factory":                 "want an IANA name",
		"utc":                     `did you mean "UTC"?`,
		"america/new_york":        `did you mean "America/New_York"?`,
		"America/New York":        `did you mean "America/New_York"?`,
		" Europe/Berlin":          `did you mean "Europe/Berlin"?`,
		"Europe/Belrin":           `did you mean "Europe/Berlin"?`,
		"Europe/Berli":            `did you mean "Europe/Berlin"?`,
		"Berlin":                  `did you mean "Europe/Berlin"?`,
		"los angeles":             `did you mean "America/Los_Angeles"?`,
		"PST":                     "want an IANA name",
		"+02:00":                  "want an IANA name",
		"Europe":                  "want an IANA name",
		"Europe/":                 "want an IANA name",
		"/":                       "want an IANA name",
		"../../../etc/passwd":     "want an IANA name",
		"/etc/localtime":          "want an IANA name",
		"Europe/../Europe/Berlin": "want an IANA name",
		"Europe/Berlin\x00":       "",
		"Düsseldorf":              "want an IANA name",
		strings.Repeat("a", 1e5):  "want an IANA name",
	} {
		_, err := LoadZone(name)
		if err == nil || !strings.Contains(err.Error(), reason) || len(err.Error()) > 200 {
			t.Errorf("LoadZone(%.40q): %v, want %s", name, err, reason)
		}
	}
}

// The embedded archive, its hash and its release must belong together. The release is checked by facts about zones that
// changed in known releases.
func TestZoneDataIsTheReleaseItClaims(t *testing.T) {
	if !regexp.MustCompile(`^20\d\d[a-z]$`).MatchString(ZoneDataVersion()) {
		t.Errorf("version %q is no IANA release", ZoneDataVersion())
	}
	want := fmt.Sprintf("%s sha256:%x\n", ZoneDataVersion(), sha256.Sum256(zoneArchive))
	if zoneVersion != want {
		t.Errorf("the version file says %q, the archive is %q: run go generate", zoneVersion, want)
	}
	for _, fact := range []struct{ since, zone, at, wall string }{
		{"2022b", "America/Santiago", "2022-09-08T12:00:00Z", "08:00"},
		{"2024b", "America/Asuncion", "2025-07-01T12:00:00Z", "09:00"},
		{"2025b", "America/Coyhaique", "2025-07-01T12:00:00Z", "09:00"},
	} {
		if ZoneDataVersion() < fact.since {
			continue
		}
		if got := parseTime(t, fact.at).In(mustZone(t, fact.zone)).Format("15:04"); got != fact.wall {
			t.Errorf("%s at %s: %s, but since %s it is %s", fact.zone, fact.at, got, fact.since, fact.wall)
		}
	}
}

// If the toolchain carries the same release, its archive has the same bytes.
func TestZoneDataIsTheToolchains(t *testing.T) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "lib", "time")
	script, err := os.ReadFile(filepath.Join(dir, "update.bash"))
	if err != nil {
		t.Skip(err)
	}
	if !bytes.Contains(script, []byte("\nDATA="+ZoneDataVersion()+"\n")) {
		t.Skip("the toolchain carries another release")
	}
	archive, err := os.ReadFile(filepath.Join(dir, "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(archive, zoneArchive) {
		t.Errorf("the archive differs from the toolchain's %s", ZoneDataVersion())
	}
}
