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
