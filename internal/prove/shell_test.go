package prove

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// shell runs commands of a page, in a directory of its own that has the binary, as punctual and as bin/punctual, and
// the master key. Each variable that a block sets is there for the next.
type shell struct {
	dir   string
	env   []string
	given map[string]string // the variables of the last block that the page did not set itself
}

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	sh := &shell{dir: t.TempDir()}
	bin := filepath.Join(sh.dir, "bin")
	must(t, os.Mkdir(bin, 0o700))
	must(t, os.Symlink(binary(t), filepath.Join(bin, "punctual")))
	must(t, os.WriteFile(filepath.Join(sh.dir, "punctual.key"), []byte(process.MasterKey+"\n"), 0o600))
	// An answer that is an error fails the command.
	const curlrc = "fail-with-body\nsilent\nshow-error\nmax-time = 30\n"
	must(t, os.WriteFile(filepath.Join(sh.dir, ".curlrc"), []byte(curlrc), 0o600))
	sh.env = append([]string{
		"HOME=" + sh.dir, "CURL_HOME=" + sh.dir, "PATH=" + bin + ":" + pgtest.Server(t).BinDir() + ":" + os.Getenv("PATH"),
		"PUNCTUAL_MASTER_KEY=", // pages name the file
		// The role of tests has time limits.
		"PGOPTIONS=-c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0",
	}, env...)
	return sh
}

// lead comes before each block: variables live on, the first command that fails ends it, and says where it stands.
// The API of the page is that of `punctual jobs`.
const lead = `set -aEeuo pipefail; if [ -e .state ]; then . ./.state; fi
PUNCTUAL_API_URL=${URL-} PUNCTUAL_API_KEY=${KEY-}
trap 'export -p >.state' EXIT; trap 'echo "line $((LINENO + %d)): $BASH_COMMAND: status $?" >&2' ERR
`

// give sets variables for the blocks to come, as far as they are others than before: what a page sets lives on.
func (sh *shell) give(t *testing.T, variables map[string]string) {
	t.Helper()
	var lines strings.Builder
	for name, value := range variables {
		if was, known := sh.given[name]; !known || was != value {
			fmt.Fprintf(&lines, "export %s='%s'\n", name, value)
		}
	}
	sh.given = variables
	state, err := os.OpenFile(filepath.Join(sh.dir, ".state"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = state.WriteString(lines.String())
	must(t, err)
	must(t, state.Close())
}

// try runs a block to its end.
func (sh *shell) try(b docs.Block) error {
	at := b.Line - 1 - strings.Count(lead, "\n")
	file := filepath.Join(sh.dir, ".block")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(lead, at)+b.Text), 0o600); err != nil {
		return err
	}
	p, err := process.Launch("/bin/bash", sh.env, "-c", `cd "$HOME" && . ./.block`)
	if err != nil {
		return err
	}
	defer p.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code, err := p.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit status %d", code)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", b, err, p.Output())
	}
	return nil
}

// starting matches a command that runs a replica, at the end of a block.
var starting = regexp.MustCompile(`(?m)^punctual serve\b(?:.*\\\n)*.*\n\z`)

// run runs a block. If its last command runs a replica, that replica is returned. It listens on a free port.
func (sh *shell) run(t *testing.T, b docs.Block) (*process.Replica, error) {
	t.Helper()
	at := starting.FindStringIndex(b.Text)
	if at == nil {
		return nil, sh.try(b)
	}
	command := b.Text[at[0]:]
	if b.Text = b.Text[:at[0]]; strings.TrimSpace(b.Text) != "" {
		if err := sh.try(b); err != nil {
			return nil, err
		}
	}
	command, _, _ = strings.Cut(strings.TrimSpace(command), " #")
	script := `cd "$HOME"; if [ -e .state ]; then . ./.state; fi; exec ` + command +
		" --listen=127.0.0.1:0 --log-format=json"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := process.Start(ctx, "/bin/bash", append(sh.env, process.CallLoopback), []string{"-euc", script})
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", b, command, err)
	}
	watch(t, r.Process)
	return r, nil
}
