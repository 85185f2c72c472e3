package archive

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var errWrite = errors.New("the database is away")

// A command that leaves before it has read everything, and one that hangs, have archived nothing.
func TestACommandSucceedsOnlyIfItReadsToTheEnd(t *testing.T) {
	t.Setenv("PUNCTUAL_MASTER_KEY", "secret")
	t.Setenv("DATABASE_URL", "secret")
	for name, tt := range map[string]struct {
		command string
		err     error // of the export
		want    string
	}{
		"it reads all":            {`test "$(wc -c)" -eq 1000000`, nil, "<nil>"},
		"it leaves":               {`head -c 10 > /dev/null`, nil, errLeftEarly.Error()},
		"it leaves with an error": {`echo "no disk"; exit 7`, nil, "the command failed: exit status 7: no disk"},
		"it hangs at once":        {`sleep 3600 & wait`, nil, errHangs.Error()},
		"it hangs in the end":     {`cat > /dev/null; sleep 3600`, nil, errHangs.Error()},
		"it is killed":            {`kill -9 $$`, nil, "the command failed: signal: killed"},
		"there is no such one":    {`no-such-program 2>/dev/null`, nil, "the command failed: exit status 127"},
		"the export fails":        {`cat > /dev/null`, errWrite, errWrite.Error()},
		"it needs no shell":       {`["sed", "-n", "$ {s/x*//; q42}"]`, nil, "the command failed: exit status 42"},
		"it gets no secrets": {
			`cat > /dev/null; test -z "$PUNCTUAL_MASTER_KEY$DATABASE_URL" && test -n "$PATH"`, nil, "<nil>",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(nil, Options{Log: slog.New(slog.DiscardHandler)})
			a.patience = 500 * time.Millisecond
			command, _, err := parse(tt.command, "")
			if err != nil {
				t.Fatal(err)
			}
			err = a.pipe(t.Context(), command, func(w io.Writer) error {
				for range 1000 {
					if _, err := w.Write(make([]byte, 1000)); err != nil {
						return err
					}
				}
				return tt.err
			})
			if got := fmt.Sprint(err); got != tt.want {
				t.Errorf("the error is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestACommandNamesTheDay(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"":                        "",
		None:                      "",
		"zstd > /archive/%d.zst":  "",
		"a %% %d":                 "",
		"zstd > /archive/all":     "must contain %d",
		"a %%d":                   "must contain %d",
		"date +%F; cat > %d":      "has a %",
		"a %d %":                  "has a %",
		strings.Repeat("x", 5000): "at most 4096 bytes",
		"a %d \x00":               "zero",
		`["cat", "/%d"]`:          "",
		`["cat", "/x"]`:           "must contain %d",
		`["no-such", "%d"]`:       "cannot be run",
		`["", "%d"]`:              "a JSON array",
		`["cat", 1, "%d"]`:        "a JSON array",
		`[]`:                      "a JSON array",
		`[ -d /a ] && cat > %d`:   "may begin with test",
	} {
		if err := CheckCommand(command); want == "" && err != nil || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.20q: %v, want %q", command, err, want)
		}
	}
	if text, n, err := expand("a%%%d/%d%%d", "2026-01-02"); text != "a%2026-01-02/2026-01-02%d" || n != 2 || err != nil {
		t.Errorf("%q, %d, %v", text, n, err)
	}
}

func TestACommandGetsNoSecretsOfPunctual(t *testing.T) {
	for _, name := range []string{"PUNCTUAL_MASTER_KEY", "DATABASE_URL", "PGPASSWORD", "OTEL_EXPORTER_OTLP_HEADERS"} {
		t.Setenv(name, "secret")
	}
	t.Setenv("AWS_PROFILE", "archive")
	got := strings.Join(environment(), "\n")
	if strings.Contains(got, "secret") || !strings.Contains(got, "AWS_PROFILE=archive") {
		t.Errorf("the command gets\n%s", got)
	}
}

func TestACommandNeedsAShellUnlessItIsAnArray(t *testing.T) {
	if err := CheckCommand("cat >%d"); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := CheckCommand(fmt.Sprintf(`[%q, "%%d"]`, program)); err != nil {
		t.Errorf("an array: %v", err)
	}
	if err := CheckCommand("cat >%d"); err == nil || !strings.Contains(err.Error(), "no sh in PATH") {
		t.Errorf("without a shell: %v", err)
	}
}
