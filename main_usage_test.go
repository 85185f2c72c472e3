package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"punctual/internal/pgtest"
)

// apart runs the binary to its end, and returns stdout and stderr separately. Only env can name a database.
func apart(t *testing.T, env []string, args ...string) (code int, out, notes string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary(t), args...)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "DATABASE_URL=") && !strings.HasPrefix(variable, "PUNCTUAL_") {
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(command.Env, env...)
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// Scripts read stdout: KEY=$(punctual keys create …) must not get the help instead of a key.
func TestAWrongCommandLineIsOneLineOnStderr(t *testing.T) {
	t.Parallel()
	const dsn = "DATABASE_URL=postgres://127.0.0.1:1/x"
	for _, test := range []struct {
		name string
		env  string
		args string
		want []string
	}{
		{
			"nothing", "", "",
			[]string{
				"no command is given", "serve, dev, jobs, freeze, unfreeze, migrate, keys, tenants, secrets, verify",
				"see punctual --help",
			},
		},
		{"an unknown command", "", "frobnicate", []string{"frobnicate", "serve, dev", "see punctual --help"}},
		{"no subcommand", "", "keys", []string{"create, list, revoke", "see punctual keys --help"}},
		{"an unknown flag", dsn, "serve --frobnicate", []string{"--frobnicate", "see punctual serve --help"}},
		{
			"a flag that is nearly right", dsn, "serve --drain-timout=1s",
			[]string{`did you mean "--drain-timeout"`, "see punctual serve --help"},
		},
		{
			"an unknown role", dsn, "keys create --role nope --name n",
			[]string{"--role", "viewer", "nope", "see punctual keys create --help"},
		},
		{"no role", dsn, "keys create --name n", []string{"--role", "see punctual keys create --help"}},
		{"no database", "", "serve", []string{"DATABASE_URL", "--database-url=postgres://", "see punctual serve --help"}},
		{
			"no database to create a key in", "", "keys create --role viewer --name n",
			[]string{"DATABASE_URL", "see punctual keys create --help"},
		},
		{"no database to migrate", "", "migrate", []string{"DATABASE_URL"}},
		{"no database to verify", "", "verify", []string{"DATABASE_URL"}},
		{"no database for secrets", "", "secrets rotate", []string{"DATABASE_URL"}},
		{"no database for tenants", "", "tenants list", []string{"DATABASE_URL"}},
		{"an empty database", "DATABASE_URL=", "serve", []string{"DATABASE_URL"}},
		{
			"a duration without a unit", dsn, "serve --drain-timeout=10",
			[]string{"--drain-timeout", "see punctual serve --help"},
		},
		{
			"an environment variable that is wrong", dsn + ",PUNCTUAL_DRAIN_TIMEOUT=10", "serve",
			[]string{"drain-timeout", "see punctual serve --help"},
		},
		{"a queue without slots", dsn, "serve --queues=default=0", []string{"default=0", "1 to 100000"}},
		{"an exposed API", dsn, "serve --auth=none --listen=0.0.0.0:1", []string{"--insecure-no-auth"}},
		{"an exposed dev", "", "dev --listen=0.0.0.0:1", []string{"--listen"}},
		{"an API at no URL", "", "jobs list --api-url=punctual", []string{"--api-url", "https://punctual.example.com"}},
		{"no job", "", "jobs show", []string{"<name>", "see punctual jobs show --help"}},
		{"a list of nothing", "", "jobs list --limit=0", []string{"--limit", "at least 1"}},
		{"no rounds", "", "bench --rounds=0", []string{"--rounds"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var env []string
			if test.env != "" {
				env = strings.Split(test.env, ",")
			}
			code, out, notes := apart(t, env, strings.Fields(test.args)...)
			if code != 2 || out != "" || strings.Count(notes, "\n") != 1 || !strings.HasPrefix(notes, "punctual: ") {
				t.Errorf("exit code %d, stdout %q, stderr:\n%s", code, out, notes)
			}
			says(t, notes, test.want...)
		})
	}
}

func TestADatabaseThatCannotBeUsedIsOneLineOnStderr(t *testing.T) {
	t.Parallel()
	noDatabase := pgtest.Server(t).DSN("nowhere")
	for _, test := range []struct {
		name string
		dsn  string
		want string
	}{
		{
			"one that refuses", "postgres://alice:not-the-password@127.0.0.1:1/x",
			`^punctual: --database-url: cannot connect to database "x" at 127\.0\.0\.1:1 as user "alice": connection refused\n$`,
		},
		{
			"two that refuse", "postgres://alice@127.0.0.1:1,127.0.0.1:2/x",
			`at 127\.0\.0\.1:1, 127\.0\.0\.1:2 as user "alice": connection refused\n$`,
		},
		{
			"a host that is none", "postgres://alice@nowhere.invalid/x",
			`at nowhere\.invalid:5432 as user "alice": (no such host|the host name cannot be resolved right now)\n$`,
		},
		{
			"a socket that is not there", "host=/nowhere user=alice dbname=x",
			`at /nowhere/\.s\.PGSQL\.5432 as user "alice": no such file or directory\n$`,
		},
		{"no URL", "not a url", `^punctual: --database-url: .*write postgres://user:password@host:5432/database\n$`},
		{"a database that is not there", noDatabase, `database "nowhere" does not exist\n$`},
		{"no schema", pgtest.EmptyDSN(t), "run `punctual migrate`"},
	} {
		for _, command := range []string{"keys list", "migrate"} {
			if test.name == "no schema" && command == "migrate" {
				continue // migrate creates the schema
			}
			t.Run(command+" in "+test.name, func(t *testing.T) {
				t.Parallel()
				code, out, notes := apart(t, []string{"DATABASE_URL=" + test.dsn}, strings.Fields(command)...)
				if code != 1 || out != "" || strings.Count(notes, "\n") != 1 || !regexp.MustCompile(test.want).MatchString(notes) ||
					strings.Contains(notes, "not-the-password") {
					t.Errorf("exit code %d, stdout %q, stderr %q", code, out, notes)
				}
			})
		}
	}
}
