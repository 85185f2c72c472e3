package cron

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
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
