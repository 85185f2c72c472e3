package command

import (
	"fmt"
	"runtime/debug"
	"strings"

	"punctual/migrations"
	"punctual/scheduler/cron"
)

// ShowVersion shows the versions of the binary, its schema, its time zone data and Go.
type ShowVersion struct{}

// Run prints the versions.
func (ShowVersion) Run(version Version) error {
	goVersion := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
	}
	_, err := fmt.Printf("punctual %s\nschema   %d\ntzdata   %s\ngo       %s\n", version, migrations.Latest(),
		cron.ZoneDataVersion(), strings.TrimPrefix(goVersion, "go"))
	return err
}
