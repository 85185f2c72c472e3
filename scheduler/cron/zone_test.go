package cron

import (
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
