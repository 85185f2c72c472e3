package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"

	"github.com/alecthomas/kong"
)

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

	Serve       Serve       `cmd:"" help:"Run a replica, scheduler and HTTP API, on your Postgres."`
	Dev         Dev         `cmd:"" help:"Run a scheduler to try things with: private Postgres, sample jobs, an echo target."`
	Jobs        Jobs        `cmd:"" help:"List, show, apply, pause, resume, run and delete jobs by the API of a replica."`
	Runs        Runs        `cmd:"" help:"Follow the runs that end, by the API of a replica, and read archived days back."`
	Events      Events      `cmd:"" help:"Emit events, list them, and show what they did, by the API of a replica."`
	Limits      Limits      `cmd:"" help:"List, set and delete the limits that jobs share, by the API of a replica."`
	Aside       Aside       `cmd:"" help:"List what fails by itself and was set aside; try it again or give it up, by the API of a replica."`
	Audit       Audit       `cmd:"" help:"List who changed what, newest first, by the API of a replica. Needs an admin."`
	Freeze      Freeze      `cmd:"" help:"Stop all claims, for all tenants or one. Requests in flight end; nothing else is sent until unfreeze."`
	Unfreeze    Unfreeze    `cmd:"" help:"End a freeze, or dispatch from a database that was restored or upgraded."`
	Migrate     Migrate     `cmd:"" help:"Bring the database's schema up to date. Safe to run from several places at once."`
	Keys        Keys        `cmd:"" help:"Create, list and revoke API keys directly in the database, also the first one."`
	Tenants     Tenants     `cmd:"" help:"Create, list, change and delete tenants directly in the database."`
	Secrets     Secrets     `cmd:"" help:"Rotate the keys that secrets are encrypted with."`
	Verify      Verify      `cmd:"" help:"Prove from the database that every slot became one run or a recorded skip. Read-only."`
	Healthcheck Healthcheck `cmd:"" help:"Ask the replica on this machine whether it is ready. For containers."`
	Version     ShowVersion `cmd:"" help:"Show the version of the binary, its schema and its time zone data."`
	Completion  Completion  `cmd:"" help:"Print a script that makes a shell complete commands and flags."`

	Complete Complete `cmd:"" hidden:"" passthrough:"" help:"List what may stand at the end of a command line."`
	Manual   Manual   `cmd:"" hidden:"" help:"Print the manual page."`

	Echo Echo `cmd:"" hidden:"" help:"Run a target that echoes and logs every request. For compose.yaml."`
}

func (c *cli) parser() *kong.Kong {
	return kong.Must(c, kong.Name("punctual"), kong.Description(description), kong.DefaultEnvars("PUNCTUAL"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
}

// Main parses a command line, runs its command, and returns the exit status of the process.
func Main(args []string, version Version, sample SampleJobs) (status int) {
	var c cli
	parsed, err := c.parser().Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, Usage(err))
		return ExitUsage
	}
	if err := runsOn(runtime.GOOS, parsed.Command()); err != nil {
		fmt.Fprintf(os.Stderr, "punctual: %s\n", err)
		return ExitUsage
	}
	log := newLog(c.LogLevel, c.LogFormat)
	ctx, hurry := Signals()
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.BindTo(hurry, (*Hurry)(nil))
	if err := parsed.Run(log, version, sample); err != nil {
		fmt.Fprintf(os.Stderr, "punctual: %s\n", Message(err))
		return exitCode(err)
	}
	return 0
}

// runsOn returns an error if a command does not run on an operating system.
func runsOn(system, command string) error {
	if system == "windows" && slices.Contains([]string{"serve", "dev", "echo"}, command) {
		return fmt.Errorf("%s runs on Linux and macOS only. Windows has the commands that call the API or the database",
			command)
	}
	return nil
}

// exitCode returns the error's own exit code, or 1 if it has none.
func exitCode(err error) int {
	var coded kong.ExitCoder
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}
