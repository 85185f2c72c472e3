package cron

import (
	"fmt"
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
		"PST":                     "an abbreviation may stand for several zones",
		"IST":                     "an abbreviation may stand for several zones",
		"+02:00":                  `is an offset; name a place such as "Europe/Berlin", or write "Etc/GMT-2", which is UTC+2`,
		"UTC+2":                   `"Etc/GMT-2", which is UTC+2`,
		"GMT+3":                   `"Etc/GMT-3", which is UTC+3`,
		"utc-05:00":               `"Etc/GMT+5", which is UTC-5`,
		"+0530":                   `is an offset; name a place such as "Europe/Berlin"`,
		"UTC+15":                  `is an offset; name a place`,
		"UTC+00:00":               `or write "UTC"`,
		"Etc/GMT3":                "want an IANA name",
		"Etc/GMT+15":              "want an IANA name",
		"Eastern Standard Time":   `is Windows's name; write "America/New_York"`,
		"China Standard Time":     `write "Asia/Shanghai"`,
		"W. Europe Standard Time": `write "Europe/Berlin"`,
		"Asia/Beijing":            `that place is in "Asia/Shanghai"`,
		"san francisco":           `that place is in "America/Los_Angeles"`,
		"Europe/Beijing":          "want an IANA name",
		"Eastern":                 `did you mean "Canada/Eastern" or "US/Eastern"?`,
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

func TestNamesOfWindowsStandForZones(t *testing.T) {
	for name, place := range windowsZones {
		if _, err := LoadZone(place); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The names of zones with a fixed offset have the opposite sign. Each that is proposed must have the offset that was
// written.
func TestAProposedOffsetIsTheOneThatWasWritten(t *testing.T) {
	at := time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC)
	for hours := -14; hours <= 16; hours++ {
		for _, form := range []string{"UTC%+d", "GMT%+d", "%+03d:00", "%+03d00"} {
			name := fmt.Sprintf(form, hours)
			zone, err := LoadZone(name)
			if err != nil {
				_, quoted, _ := strings.Cut(err.Error(), `or write "`)
				quoted, _, _ = strings.Cut(quoted, `"`)
				if zone, err = LoadZone(quoted); quoted == "" && (hours < -12 || hours > 14) {
					continue
				}
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if _, east := at.In(zone).Zone(); east != hours*60*60 {
				t.Errorf("%s became %s", name, zone)
			}
		}
	}
}

// A place is proposed a zone of its own continent that exists, and only where its own name is none.
func TestPlacesAreInZones(t *testing.T) {
	t.Parallel()
	for zone, cities := range places {
		if _, err := LoadZone(zone); err != nil {
			t.Error(err)
		}
		continent, _, _ := strings.Cut(zone, "/")
		for _, place := range cities {
			for _, known := range Zones().names {
				if _, city, _ := strings.Cut(folded(known), "/"); city == place {
					t.Errorf("%s is a zone", known)
				}
			}
			if zoneOfPlace(continent+"/"+place) != zone || zoneOfPlace(place) != zone || zoneOfPlace("Antarctica/"+place) != "" {
				t.Errorf("%s is not found in %s alone", place, continent)
			}
		}
	}
}
