// Punctual is cron as a service on the Postgres you already have.
package main

import (
	_ "embed"
	"os"

	"punctual/internal/command"
)

// The linker sets version.
var version = "dev"

//go:embed testdata/sample-jobs.json
var sampleJobs []byte

func main() {
	os.Exit(command.Main(os.Args[1:], command.Version(version), command.SampleJobs(sampleJobs)))
}
