package command

import (
	"fmt"
	"runtime/debug"
	"strings"

	"punctual/migrations"
	"punctual/scheduler/cron"
)

// ShowVersion shows the version of the binary, its schema and its time zone data.
type ShowVersion struct{}

// Run prints it.
func (ShowVersion) Run(version Version) error {
	goVersion := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
	}
	_, err := fmt.Printf("punctual %s\nschema   %d\ntzdata   %s\ngo       %s\n", version, migrations.Latest(), cron.ZoneDataVersion(), strings.TrimPrefix(goVersion, "go"))
	return err
}
