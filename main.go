// Punctual is cron as a service on the Postgres you already have.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/lmittmann/tint"

	"punctual/internal/bench"
	"punctual/internal/command"
)

// The linker sets version.
var version = "dev"

//go:embed testdata/sample-jobs.json
var sampleJobs []byte

const description = `Cron as a service on the Postgres you already have: jobs are HTTP callbacks, ` +
	`replicas need no leader.

Try it:

    punctual dev

In production, once and then as often as you like:

    openssl rand -base64 32 > punctual.key
    punctual migrate --database-url postgres://…
    punctual keys create --tenant default --role operator --name first --database-url postgres://…
    punctual serve --database-url postgres://… --master-key-file punctual.key

Every flag can be given as an environment variable, PUNCTUAL_ and its name: PUNCTUAL_DRAIN_TIMEOUT=10s.
The exit status is 0 when the command succeeded, 1 when it failed, and 2 when the command line is wrong.`

// cli is the table of subcommands.
type cli struct {
	LogLevel  slog.Level `default:"info" help:"Lowest level to log: debug, info, warn or error."`
	LogFormat string     `default:"text" enum:"text,json" help:"Form of the log: text for people, json for machines."`

	Serve       command.Serve       `cmd:"" help:"Run a replica, scheduler and HTTP API, on your Postgres."`
	Dev         command.Dev         `cmd:"" help:"Run a scheduler to try things with: private Postgres, sample jobs, an echo target."`
	Jobs        command.Jobs        `cmd:"" help:"List, show, apply, pause, resume, run and delete jobs by the API of a replica."`
	Runs        command.Runs        `cmd:"" help:"Follow the runs that end, by the API of a replica, and read archived days back."`
	Events      command.Events      `cmd:"" help:"Emit events, list them, and show what they did, by the API of a replica."`
	Limits      command.Limits      `cmd:"" help:"List, set and delete the limits that jobs share, by the API of a replica."`
	Aside       command.Aside       `cmd:"" help:"List what fails by itself and was set aside; try it again or give it up, by the API of a replica."`
	Audit       command.Audit       `cmd:"" help:"List who changed what, newest first, by the API of a replica. Needs an admin."`
	Freeze      command.Freeze      `cmd:"" help:"Stop all claims, for all tenants or for one. Requests in flight end; nothing else is sent until unfreeze."`
	Unfreeze    command.Unfreeze    `cmd:"" help:"End a freeze, or dispatch from a database that was restored or upgraded."`
	Migrate     command.Migrate     `cmd:"" help:"Bring the database's schema up to date. Safe to run from several places at once."`
	Keys        command.Keys        `cmd:"" help:"Create, list and revoke API keys directly in the database, also the first one."`
	Tenants     command.Tenants     `cmd:"" help:"Create, list, change and delete tenants directly in the database."`
	Secrets     command.Secrets     `cmd:"" help:"Rotate the keys that secrets are encrypted with."`
	Verify      command.Verify      `cmd:"" help:"Prove from the database that every slot became one run or a recorded skip. Read-only."`
	Healthcheck command.Healthcheck `cmd:"" help:"Ask the replica on this machine whether it is ready. For containers."`
	Bench       command.Bench       `cmd:"" hidden:"" help:"Measure throughput, lateness and cost, on a private Postgres or in an empty database of yours."`
	Version     command.ShowVersion `cmd:"" help:"Show the version of the binary, its schema and its time zone data."`

	Echo        command.Echo        `cmd:"" hidden:"" help:"Run a target that echoes and logs every request. For compose.yaml."`
	BenchTarget command.BenchTarget `cmd:"" hidden:"" help:"The target of punctual bench, in a process of its own."`
	BenchBare   command.BenchBare   `cmd:"" hidden:"" help:"The bare loop of punctual bench, in a process of its own."`
}

func (c *cli) parser() *kong.Kong {
	return kong.Must(c, kong.Name("punctual"), kong.Description(description), kong.DefaultEnvars("PUNCTUAL"),
		kong.Vars{"benchmarks": strings.Join(bench.Names(), ", ")},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
}

func main() {
	var c cli
	parsed, err := c.parser().Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, command.Usage(err))
		os.Exit(command.ExitUsage)
	}
	log := newLog(c.LogLevel, c.LogFormat)
	ctx, hurry := command.Signals()
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.BindTo(hurry, (*command.Hurry)(nil))
	if err := parsed.Run(log, command.Version(version), command.SampleJobs(sampleJobs)); err != nil {
		fmt.Fprintf(os.Stderr, "punctual: %s\n", command.Message(err))
		os.Exit(exitCode(err))
	}
}

// exitCode returns the error's own exit code, or 1 if it has none.
func exitCode(err error) int {
	var coded kong.ExitCoder
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}

func newLog(level slog.Level, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: inSeconds}))
	}
	terminal, err := os.Stderr.Stat()
	plain := err != nil || terminal.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != ""
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{Level: level, TimeFormat: time.DateTime, NoColor: plain}))
}

// inSeconds writes a duration as a number of seconds, under a name with the unit: took_s. slog would write nanoseconds.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_s", a.Value.Duration().Seconds())
}
