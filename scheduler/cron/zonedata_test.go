package cron

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The release that the data names is checked by facts about zones that changed in known releases.
func TestZoneDataIsTheReleaseItClaims(t *testing.T) {
	data := embedded()
	if data.Release < "2026f" || data.Published.Year() < 2026 || len(data.names) < 590 {
		t.Fatalf("release %q of %s with %d zones, want 2026f or later", data.Release, data.Published, len(data.names))
	}
	for _, fact := range []struct{ since, zone, at, wall string }{
		{"2024b", "America/Asuncion", "2025-07-01T12:00:00Z", "09:00"},
		{"2025b", "America/Coyhaique", "2025-07-01T12:00:00Z", "09:00"},
		{"2026b", "America/Vancouver", "2026-12-01T12:00:00Z", "05:00"},
		{"2026c", "America/Edmonton", "2026-12-01T12:00:00Z", "06:00"},
		{"2026c", "Africa/Casablanca", "2026-12-01T12:00:00Z", "12:00"},
		{"2026d", "America/Inuvik", "2026-12-01T12:00:00Z", "06:00"},
		{"2026f", "America/Havana", "2026-12-01T12:00:00Z", "08:00"},
	} {
		if got := parseTime(t, fact.at).In(mustZone(t, fact.zone)).Format("15:04"); got != fact.wall {
			t.Errorf("%s at %s: %s, but since %s it is %s", fact.zone, fact.at, got, fact.since, fact.wall)
		}
	}
}

func TestZoneDataGetsOld(t *testing.T) {
	data := embedded()
	for age, old := range map[time.Duration]bool{0: false, 180 * 24 * time.Hour: false, 184 * 24 * time.Hour: true} {
		if data.Old(data.Published.Add(age)) != old {
			t.Errorf("after %s: old %t, want %t", age, !old, old)
		}
	}
}

// zonesIn writes the embedded zones into a directory, some of them changed, and says when it was made.
func zonesIn(t *testing.T, changed map[string]string) (dir string, made time.Time) {
	t.Helper()
	dir, made = t.TempDir(), time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	files := map[string]string{"zone.tab": "a table", "right/Europe/Berlin": "leap seconds", "posixrules": "rules"}
	for _, f := range embedded().names {
		data, err := zoneFile(f)
		if err != nil {
			t.Fatal(err)
		}
		files[f] = data
	}
	maps.Copy(files, changed)
	maps.DeleteFunc(files, func(_, content string) bool { return content == "" })
	for name, content := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(at, made, made); err != nil {
			t.Fatal(err)
		}
	}
	return dir, made
}

func zoneFile(name string) (string, error) {
	data, err := fs.ReadFile(embedded().files, name)
	return string(data), err
}

func TestGivenZoneDataIsUsed(t *testing.T) {
	t.Cleanup(func() { given.Store(nil) })
	tokyo, _ := zoneFile("Asia/Tokyo")
	changed := map[string]string{"Europe/Berlin": tokyo, "Europe/Atlantis": tokyo}
	for name, release := range map[string][2]string{
		"as Linux has it": {"tzdata.zi", "# version 2031a\n# redo posix_only\n"},
		"as macOS has it": {"+VERSION", "2031a\n"},
	} {
		changed[release[0]] = release[1]
		dir, made := zonesIn(t, changed)
		delete(changed, release[0])
		if used, err := UseZoneData(dir); err != nil || !used {
			t.Fatalf("%s: used %t, %v", name, used, err)
		}
		if err := os.RemoveAll(dir); err != nil { // what was read stays
			t.Fatal(err)
		}
		if z := Zones(); z.Release != "2031a" || !z.Published.Equal(made) {
			t.Errorf("%s: release %s of %s, want 2031a of %s", name, z.Release, z.Published, made)
		}
		for _, zone := range []string{"Europe/Berlin", "Europe/Atlantis"} {
			at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).In(mustZone(t, zone))
			if at.Hour() != 21 {
				t.Errorf("%s: %s at noon, want 21:00 in %s", name, at, zone)
			}
		}
		given.Store(nil)
	}
}

func TestZoneDataThatIsNotFitIsRefused(t *testing.T) {
	t.Cleanup(func() { given.Store(nil) })
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := func(changed map[string]string) string {
		d, _ := zonesIn(t, changed)
		return d
	}
	for path, want := range map[string]string{
		filepath.Join(file, "none"): "not a directory",
		file:                        "neither a directory of zone files nor a zip archive",
		dir(nil):                    "neither +VERSION nor tzdata.zi",
		dir(map[string]string{"+VERSION": "latest"}):                           `"latest", which is no IANA release such as 2026f`,
		dir(map[string]string{"+VERSION": "2031a", "US/Pacific": ""}):          "it lacks the time zone US/Pacific",
		dir(map[string]string{"+VERSION": "2031a", "Europe/Berlin": "broken"}): `time zone "Europe/Berlin"`,
	} {
		if used, err := UseZoneData(path); used || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: used %t, %v; want %s", path, used, err, want)
		}
	}
	older := dir(map[string]string{"+VERSION": "2024a"})
	if used, err := UseZoneData(older); used || err != nil || Zones() != embedded() {
		t.Errorf("data older than the binary's: used %t, %v", used, err)
	}
	if !slices.IsSorted(embedded().names) {
		t.Error("the names of zones are not sorted")
	}
}
