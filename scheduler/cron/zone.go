package cron

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:generate ./refresh.sh

// Zone data comes with the binary. [time.LoadLocation] prefers the machine's data, and two replicas on two machines
// might then disagree about when a job is due. The copy in time/tzdata does not help: only LoadLocation reads it, and
// only when the machine has none, and nothing tells its release.
var (
	//go:embed zonedata/zoneinfo.zip
	zoneArchive []byte
	//go:embed zonedata/version
	zoneVersion string
)

// ZoneDataVersion is the IANA release of the embedded zone data, such as "2025c".
func ZoneDataVersion() string {
	release, _, _ := strings.Cut(zoneVersion, " ")
	return release
}

// zoneFiles opens the archive once. The file names in it are the zones there are.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(bytes.NewReader(zoneArchive), int64(len(zoneArchive)))
	if err != nil {
		panic("cron: embedded zone data: " + err.Error()) // the binary is broken; no input can cause this
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		if f.Name != "Factory" && f.Name != "localtime" && f.Name != "posixrules" && !strings.HasSuffix(f.Name, "/") {
			files[f.Name] = f
		}
	}
	return files
})

// zones holds every zone loaded so far, by name. There are some 600 at most, because only names in the archive enter.
var zones sync.Map

// LoadZone finds a zone by its exact IANA name, such as "Europe/Berlin"; "" means UTC. "Local", paths and names in
// the wrong case are errors, which suggest a name if one is close. The same name always gives the same pointer.
func LoadZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	file, ok := zoneFiles()[name]
	if !ok {
		return nil, unknownZone(name)
	}
	zone, err := readZone(file)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: embedded data: %w", name, err)
	}
	shared, _ := zones.LoadOrStore(strings.Clone(name), zone)
	return shared.(*time.Location), nil
}

func readZone(file *zip.File) (*time.Location, error) {
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

// unknownZone says which name would have been right.
func unknownZone(name string) error {
	switch strings.ToLower(name) {
	case "local", "localtime", "posixrules":
		return fmt.Errorf("time zone %s depends on the machine; want an IANA name such as \"Europe/Berlin\", or \"UTC\"",
			quoted(name))
	}
	if near, ok := nearestZone(name); ok {
		return fmt.Errorf("time zone %s is unknown; did you mean %q?", quoted(name), near)
	}
	return fmt.Errorf("time zone %s is unknown; want an IANA name such as \"Europe/Berlin\", or \"UTC\"", quoted(name))
}

// nearestZone looks for a zone that differs only in case or spacing, then for one whose city was named, then for one
// with a single typing error.
func nearestZone(name string) (string, bool) {
	if len(name) > 40 {
		return "", false
	}
	wanted := folded(name)
	names := slices.Sorted(maps.Keys(zoneFiles()))
	tests := []func(zone string) bool{
		func(zone string) bool { return zone == wanted },
		func(zone string) bool { return wanted != "" && strings.HasSuffix(zone, "/"+wanted) },
		func(zone string) bool { return len(wanted) > 4 && oneSlip(zone, wanted) },
	}
	for _, test := range tests {
		if i := slices.IndexFunc(names, func(zone string) bool { return test(folded(zone)) }); i >= 0 {
			return names[i], true
		}
	}
	return "", false
}

func folded(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "_")
}

// oneSlip reports whether one byte was left out, added or replaced, or two neighbours were swapped.
func oneSlip(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(b) && a[i] == b[i] {
		i++
	}
	switch len(a) - len(b) {
	case 1:
		return a[i+1:] == b[i:]
	case 0:
		return i < len(a) && (a[i+1:] == b[i+1:] ||
			i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:])
	default:
		return false
	}
}
