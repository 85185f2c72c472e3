package cron

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Zone data comes with the binary. [time.LoadLocation] prefers the machine's data, and two replicas on two machines
// might then disagree about when a job is due. The data is not the Go toolchain's, which is as old as Go's last major
// release: refresh.sh makes the archive from IANA's newest release.
//
//go:embed zonedata/zoneinfo.zip
var zoneArchive []byte

// ZoneData is a release of the IANA time zone database. Safe for concurrent use.
type ZoneData struct {
	Release   string    // such as "2026f"
	Published time.Time // when IANA published it. Of data that an operator gives: when its files were made.

	files  fs.FS
	names  []string // of its zones, sorted
	loaded sync.Map // the zones loaded so far, by name: *time.Location. Only names enter that are in names.
}

// zoneDataAges is when zone data is old: governments announce changes of the clock with less notice than that.
const zoneDataAges = 183 * 24 * time.Hour

// Old reports whether the data was published more than half a year before now.
func (d *ZoneData) Old(now time.Time) bool { return now.Sub(d.Published) > zoneDataAges }

// embedded is the data that the binary carries.
var embedded = sync.OnceValue(func() *ZoneData {
	archive, err := zip.NewReader(bytes.NewReader(zoneArchive), int64(len(zoneArchive)))
	if err == nil {
		var d *ZoneData
		if d, err = readZoneData(archive); err == nil {
			return d
		}
	}
	panic("cron: embedded zone data: " + err.Error()) // the binary is broken; no input can cause this
})

// given is the data in place of the embedded one; nil if there is none.
var given atomic.Pointer[ZoneData]

// Zones returns the zone data in use.
func Zones() *ZoneData {
	if d := given.Load(); d != nil {
		return d
	}
	return embedded()
}

// UseZoneData uses the zone data in a directory such as /usr/share/zoneinfo, or in a zip archive of one, in place of
// the binary's. The binary's stays in use if it is newer; used says so. The data must have every zone that the
// binary's has, as a job may name any of them. It is read as a whole, so that it stays the same whatever happens to
// the files. Call it before any zone is loaded.
func UseZoneData(name string) (used bool, err error) {
	files, release, err := openZoneData(name)
	if err != nil {
		return false, err
	}
	defer release()
	d, err := readZoneData(files)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	if d.Release < embedded().Release {
		return false, nil
	}
	if err := d.complete(); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	given.Store(d)
	return true, nil
}

func openZoneData(name string) (files fs.FS, release func(), err error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return os.DirFS(name), func() {}, nil
	}
	archive, err := zip.OpenReader(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is neither a directory of zone files nor a zip archive of one: %w", name, err)
	}
	return archive, func() { _ = archive.Close() }, nil
}

// zonePath is the shape of a zone's name. What else such a directory has is in lower case: tables, leap seconds, and
// the directories posix and right, which hold all zones once more.
var zonePath = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+/-]*$`)

// readZoneData finds the release of the data, and the names of its zones.
func readZoneData(files fs.FS) (*ZoneData, error) {
	d := &ZoneData{files: files}
	if err := d.readRelease(); err != nil {
		return nil, err
	}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case !zonePath.MatchString(name) && entry.IsDir():
			return fs.SkipDir
		case zonePath.MatchString(name) && !entry.IsDir() && name != "Factory":
			d.names = append(d.names, name)
		}
		return nil
	})
	slices.Sort(d.names)
	return d, err
}

// releaseFiles are where a directory of zone files says which release it is: +VERSION in ours, in BSD's and in
// macOS's, the first line of tzdata.zi in those of Linux.
var releaseFiles = []string{"+VERSION", "tzdata.zi"}

var releaseLine = regexp.MustCompile(`^(?:# version )?(\d{4}[a-z]{1,2})\n?$`)

func (d *ZoneData) readRelease() error {
	for _, name := range releaseFiles {
		text, err := fs.ReadFile(d.files, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		line, _, _ := strings.Cut(string(text), "\n")
		found := releaseLine.FindStringSubmatch(line)
		if found == nil {
			return fmt.Errorf("%s says %s, which is no IANA release such as 2026f", name, quoted(line))
		}
		info, err := fs.Stat(d.files, name)
		if err != nil {
			return err
		}
		d.Release, d.Published = found[1], info.ModTime().UTC()
		return nil
	}
	return errors.New("it does not say which IANA release it is: it has neither +VERSION nor tzdata.zi")
}

// complete loads all zones. It fails if one that the binary's data has is missing.
func (d *ZoneData) complete() error {
	for _, name := range embedded().names {
		if _, found := slices.BinarySearch(d.names, name); !found {
			return fmt.Errorf("it lacks the time zone %s, which jobs may name; on Debian, install tzdata-legacy too", name)
		}
	}
	for _, name := range d.names {
		if _, err := d.zone(name); err != nil {
			return err
		}
	}
	return nil
}

// zone loads a zone. It returns nil if the data has none of that name.
func (d *ZoneData) zone(name string) (*time.Location, error) {
	if zone, ok := d.loaded.Load(name); ok {
		return zone.(*time.Location), nil
	}
	i, found := slices.BinarySearch(d.names, name)
	if !found {
		return nil, nil
	}
	name = d.names[i] // not the caller's, which may be a part of something large
	data, err := fs.ReadFile(d.files, name)
	if err != nil {
		return nil, err
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, err)
	}
	shared, _ := d.loaded.LoadOrStore(name, zone)
	return shared.(*time.Location), nil
}
