package cron

import "strings"

// places are well-known cities after which no zone is named, each with the zone in which it lies. A name that several
// cities share is left out, if they lie in several zones.
var places = map[string]string{
	"abu_dhabi":      "Asia/Dubai",
	"abuja":          "Africa/Lagos",
	"ankara":         "Europe/Istanbul",
	"atlanta":        "America/New_York",
	"bangalore":      "Asia/Kolkata",
	"barcelona":      "Europe/Madrid",
	"beijing":        "Asia/Shanghai",
	"bengaluru":      "Asia/Kolkata",
	"bern":           "Europe/Zurich",
	"bombay":         "Asia/Kolkata",
	"boston":         "America/New_York",
	"brasilia":       "America/Sao_Paulo",
	"busan":          "Asia/Seoul",
	"cape_town":      "Africa/Johannesburg",
	"chennai":        "Asia/Kolkata",
	"cologne":        "Europe/Berlin",
	"dallas":         "America/Chicago",
	"delhi":          "Asia/Kolkata",
	"edinburgh":      "Europe/London",
	"frankfurt":      "Europe/Berlin",
	"geneva":         "Europe/Zurich",
	"gothenburg":     "Europe/Stockholm",
	"guangzhou":      "Asia/Shanghai",
	"hamburg":        "Europe/Berlin",
	"houston":        "America/Chicago",
	"islamabad":      "Asia/Karachi",
	"jeddah":         "Asia/Riyadh",
	"kyoto":          "Asia/Tokyo",
	"lahore":         "Asia/Karachi",
	"las_vegas":      "America/Los_Angeles",
	"lyon":           "Europe/Paris",
	"marseille":      "Europe/Paris",
	"miami":          "America/New_York",
	"milan":          "Europe/Rome",
	"mumbai":         "Asia/Kolkata",
	"munich":         "Europe/Berlin",
	"new_delhi":      "Asia/Kolkata",
	"osaka":          "Asia/Tokyo",
	"ottawa":         "America/Toronto",
	"philadelphia":   "America/New_York",
	"pretoria":       "Africa/Johannesburg",
	"rio_de_janeiro": "America/Sao_Paulo",
	"rotterdam":      "Europe/Amsterdam",
	"san_diego":      "America/Los_Angeles",
	"san_francisco":  "America/Los_Angeles",
	"seattle":        "America/Los_Angeles",
	"shenzhen":       "Asia/Shanghai",
	"the_hague":      "Europe/Amsterdam",
	"wellington":     "Pacific/Auckland",
}

// zoneOfPlace returns the zone of a well-known city, named alone or behind its continent; empty if it knows none.
func zoneOfPlace(name string) string {
	continent, city, found := strings.Cut(folded(name), "/")
	if !found {
		continent, city = "", continent
	}
	zone := places[city]
	if continent != "" && !strings.HasPrefix(strings.ToLower(zone), continent+"/") {
		return ""
	}
	return zone
}
