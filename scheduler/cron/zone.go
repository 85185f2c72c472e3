package cron

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// LoadZone finds a zone by its exact IANA name, such as "Europe/Berlin"; "" means UTC. "Local", paths and names in
// the wrong case are errors, which suggest a name if one is close. The same name always gives the same pointer.
func LoadZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	zone, err := Zones().zone(name)
	if err == nil && zone == nil {
		err = unknownZone(name)
	}
	return zone, err
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
	names := Zones().names
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
