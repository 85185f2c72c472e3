package cron

import (
	"slices"
	"strings"
)

// places are well-known cities after which no zone is named, by the zone in which they lie. A name that several cities
// share is left out, if they lie in several zones.
var places = map[string][]string{
	"Africa/Johannesburg": {"cape_town", "pretoria"},
	"Africa/Lagos":        {"abuja"},
	"America/Chicago":     {"dallas", "houston"},
	"America/Los_Angeles": {"las_vegas", "san_diego", "san_francisco", "seattle"},
	"America/New_York":    {"atlanta", "boston", "miami", "philadelphia"},
	"America/Sao_Paulo":   {"brasilia", "rio_de_janeiro"},
	"America/Toronto":     {"ottawa"},
	"Asia/Dubai":          {"abu_dhabi"},
	"Asia/Karachi":        {"islamabad", "lahore"},
	"Asia/Kolkata":        {"bangalore", "bengaluru", "bombay", "chennai", "delhi", "mumbai", "new_delhi"},
	"Asia/Riyadh":         {"jeddah"},
	"Asia/Seoul":          {"busan"},
	"Asia/Shanghai":       {"beijing", "guangzhou", "shenzhen"},
	"Asia/Tokyo":          {"kyoto", "osaka"},
	"Europe/Amsterdam":    {"rotterdam", "the_hague"},
	"Europe/Berlin":       {"cologne", "frankfurt", "hamburg", "munich"},
	"Europe/Istanbul":     {"ankara"},
	"Europe/London":       {"edinburgh"},
	"Europe/Madrid":       {"barcelona"},
	"Europe/Paris":        {"lyon", "marseille"},
	"Europe/Rome":         {"milan"},
	"Europe/Stockholm":    {"gothenburg"},
	"Europe/Zurich":       {"bern", "geneva"},
	"Pacific/Auckland":    {"wellington"},
}

// zoneOfPlace returns the zone of a well-known city, named alone or behind its continent; empty if it knows none.
func zoneOfPlace(name string) string {
	for zone, cities := range places {
		continent, _, _ := strings.Cut(strings.ToLower(zone), "/")
		if slices.Contains(cities, strings.TrimPrefix(folded(name), continent+"/")) {
			return zone
		}
	}
	return ""
}
