package cron

import (
	"fmt"
	"regexp"
	"strconv"
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
	case "z":
		return fmt.Errorf("time zone %s is not a name; write \"UTC\"", quoted(name))
	case "local", "localtime", "posixrules":
		return fmt.Errorf("time zone %s depends on the machine; want an IANA name such as \"Europe/Berlin\", or \"UTC\"",
			quoted(name))
	}
	if fixed := fixedOffset(name); fixed != "" {
		return fmt.Errorf("time zone %s is an offset; %s", quoted(name), fixed)
	}
	if place := windowsZones[strings.TrimSpace(name)]; place != "" {
		return fmt.Errorf("time zone %s is Windows's name; write %q", quoted(name), place)
	}
	if zone := zoneOfPlace(name); zone != "" {
		return fmt.Errorf("time zone %s is unknown; that place is in %q", quoted(name), zone)
	}
	if near := nearestZones(name); len(near) > 0 && len(near) <= 3 {
		return fmt.Errorf("time zone %s is unknown; did you mean %s?", quoted(name), strings.Join(near, " or "))
	}
	if abbreviation.MatchString(name) {
		return fmt.Errorf("time zone %s is unknown; an abbreviation may stand for several zones, so name a place such "+
			"as \"Europe/Berlin\"", quoted(name))
	}
	return fmt.Errorf("time zone %s is unknown; want an IANA name such as \"Europe/Berlin\", or \"UTC\"", quoted(name))
}

var (
	abbreviation = regexp.MustCompile(`^[A-Z]{3,4}$`)
	offsetForm   = regexp.MustCompile(`^(?:UTC|GMT|Z)? ?([+-])(\d\d?)(?::?(\d\d))?$`)
)

// fixedOffset says how to write an offset such as UTC+3, GMT+3 or +03:00 as a zone; empty if the name is none. The
// names of zones with a fixed offset have the opposite sign, so the offset is said too.
func fixedOffset(name string) string {
	found := offsetForm.FindStringSubmatch(strings.ToUpper(strings.TrimSpace(name)))
	if found == nil {
		return ""
	}
	const place = "name a place such as \"Europe/Berlin\""
	east, opposite := found[1] == "+", "-"
	if !east {
		opposite = "+"
	}
	switch hours, _ := number(found[2]); {
	case strings.Trim(found[3], "0") != "" || east && hours > 14 || !east && hours > 12:
		return place
	case hours == 0:
		return place + ", or write \"UTC\""
	default:
		return fmt.Sprintf("%s, or write \"Etc/GMT%s%d\", which is UTC%s%d", place, opposite, hours, found[1], hours)
	}
}

// nearestZones looks for a zone that differs only in case or spacing, then for those whose city was named, then for
// those with a single typing error in their letters. Each is in quotes.
func nearestZones(name string) (near []string) {
	if len(name) > 40 {
		return nil
	}
	wanted := folded(name)
	tests := []func(zone string) bool{
		func(zone string) bool { return zone == wanted },
		func(zone string) bool { return wanted != "" && strings.HasSuffix(zone, "/"+wanted) },
		func(zone string) bool {
			return len(wanted) > 4 && digits(zone) == digits(wanted) && oneSlip(zone, wanted)
		},
	}
	for _, test := range tests {
		for _, zone := range Zones().names {
			if test(folded(zone)) {
				near = append(near, strconv.Quote(zone))
			}
		}
		if len(near) > 0 {
			break
		}
	}
	return near
}

// digits keeps the digits and signs of a zone's name. A slip in these is another offset.
func digits(zone string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("+-0123456789", r) {
			return r
		}
		return -1
	}, zone)
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
