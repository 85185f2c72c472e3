package command

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"punctual/migrations"
	"punctual/scheduler/cron"
)

// ShowVersion shows the versions of the binary, its schema, its time zone data and Go.
type ShowVersion struct{ zoneData }

// Run prints the versions.
func (c ShowVersion) Run(log *slog.Logger, version Version) error {
	if err := c.use(log); err != nil {
		return err
	}
	goVersion := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
	}
	zones := cron.Zones()
	_, err := fmt.Printf("punctual %s\nschema   %d\ntzdata   %s, published %s\ngo       %s\n",
		version, migrations.Latest(),
		zones.Release, zones.Published.Format(time.DateOnly), strings.TrimPrefix(goVersion, "go"))
	return err
}

// zoneData holds the flag that replaces the time zone data of the binary.
type zoneData struct {
	ZoneData string `type:"path" placeholder:"FILE|DIR" help:"Time zone data to use if it is newer than the binary's: a directory such as /usr/share/zoneinfo, or a zip archive of one. Read once, at the start. The same on every replica."`
}

// use reads the data that the flag names, and warns of data that is old.
func (z zoneData) use(log *slog.Logger) error {
	if z.ZoneData != "" {
		used, err := cron.UseZoneData(z.ZoneData)
		if err != nil {
			return fmt.Errorf("--zone-data: %w", err)
		}
		if !used {
			log.Warn("the time zone data of --zone-data is older than the binary's, which is used", "file", z.ZoneData,
				"release", cron.Zones().Release)
		}
	}
	if zones := cron.Zones(); zones.Old(time.Now()) {
		log.Warn("the time zone data is more than half a year old: jobs in zones whose rules have changed since fire at "+
			"wrong times; upgrade, or give newer data with --zone-data", "release", zones.Release,
			"published", zones.Published.Format(time.DateOnly))
	}
	return nil
}
