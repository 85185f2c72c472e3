//prove:other

package prove

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

const (
	receivingPage = "docs/receiving.md"
	migratePage   = "docs/migrate.md"
)

// program starts the program that a page has in a language, on a free port, and returns its URL.
func program(t *testing.T, page, language string, env []string, args ...string) (p *process.Process, url string) {
	t.Helper()
	found := docs.Code(t, page, language)
	if len(found) != 1 {
		t.Fatalf("%s has %d programs in %s", page, len(found), language)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	command := append(runnable(t, language, strings.ReplaceAll(found[0], "9000", port)), args...)
	p, err = process.Launch(command[0], env, command[1:]...)
	must(t, err)
	watch(t, p)
	await(t, "the program in "+language+" to listen", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return p, "http://" + address
}

// runnable returns the command that runs a program of a page.
func runnable(t *testing.T, language, text string) []string {
	t.Helper()
	dir := t.TempDir()
	file, built := filepath.Join(dir, "program."+language), filepath.Join(dir, "program")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	switch language {
	case "js":
		return []string{pgtest.Program(t, "apt-get install nodejs", "node"), file}
	case "python": // of the system, which has the packages that .ci/install knows
		return []string{pgtest.Program(t, "apt-get install python3", "/usr/bin/python3", "python3"), file}
	case "go":
		succeed(t, pgtest.Program(t, "https://go.dev/dl", "go"), plain, "build", "-o", built, file)
		return []string{built}
	}
	t.Fatalf("no test runs programs in %q", language)
	return nil
}

// The receivers of docs/receiving.md take signed calls, and refuse all others.
//
// Of a replica, and signed in the way that the page says.
func TestTheReceiversOfTheDocsCheckSignatures(t *testing.T) {
	t.Parallel()
	r := serve(t, pgtest.DSN(t))
	secret := do[struct{ Secret string }](t, r.API, "POST", "/v1/signing-secrets", nil).Secret
	byHand := signedByHand(t, secret)
	for _, language := range []string{"js", "python", "go"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			receiver, url := program(t, receivingPage, language, []string{"WEBHOOK_SECRET=" + secret})
			create(t, r.API, process.JobSpec{
				"name": language, "target": map[string]any{"url": url, "body": map[string]any{"hello": "grüße"}},
			})
			run := trigger(t, r.API, language)
			await(t, "the receiver to take the call", func() bool {
				return strings.Contains(receiver.Output(), fmt.Sprintf(`%s %s {"hello":"grüße"}`, language, run))
			})
			if status := finalRun(t, r.API, run).Status; status != "succeeded" {
				t.Errorf("the run is %s", status)
			}
			for what, c := range map[string]struct{ old, by, want string }{
				"as the page says":     {"", "", "204"},
				"another body":         {`-d "$BODY"`, `-d "x$BODY"`, "401"},
				"another id":           {`Webhook-Id: `, `Webhook-Id: x`, "401"},
				"another secret":       {secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "401"},
				"a signature for ever": {"date +%s", "date -d '-6 minutes' +%s", "401"},
				"one of the future":    {"date +%s", "date -d '+6 minutes' +%s", "401"},
				"no time":              {"Webhook-Timestamp: $AT", "X: x", "401"},
				"no signature":         {"Webhook-Signature: ", "X: ", "401"},
				"a second signature":   {"Webhook-Signature: ", "Webhook-Signature: v1,AAAA v1a,é ", "204"},
				"nonsense":             {"Webhook-Signature: v1,$(sign)", "Webhook-Signature: é,, v1, v1", "401"},
			} {
				script := strings.ReplaceAll(byHand, "http://127.0.0.1:9000", url)
				if c.old != "" && !strings.Contains(script, c.old) {
					t.Errorf("%s: the page does not say %q", what, c.old)
				}
				script = strings.ReplaceAll(script, c.old, c.by)
				if got := strings.TrimSpace(succeed(t, "/bin/bash", nil, "-euo", "pipefail", "-c", script)); got != c.want {
					t.Errorf("%s: answered %s, want %s", what, got, c.want)
				}
			}
		})
	}
}

// signedByHand returns the page's commands for the test vector, which must be right, and those for a call with curl, by
// the given secret.
func signedByHand(t *testing.T, secret string) (script string) {
	t.Helper()
	calls := docs.Code(t, receivingPage, "console")
	if len(calls) != 1 {
		t.Fatalf("the page has %d calls with curl", len(calls))
	}
	for _, block := range docs.Code(t, receivingPage, "sh") {
		if strings.Contains(block, "sign() {") {
			script = block + "SECRET=" + secret + "\n" + calls[0]
		}
	}
	if script == "" {
		t.Fatal("the page does not say how to sign")
	}
	return script
}

// The programs of docs/migrate.md run a command for each call, and fail the call when it fails.
func TestTheWrappersOfTheDocsRunACommand(t *testing.T) {
	t.Parallel()
	r := serve(t, pgtest.DSN(t))
	for _, language := range []string{"python", "go"} {
		for status, script := range map[string]string{"succeeded": "echo done", "dead": "echo out of disk >&2; exit 3"} {
			t.Run(language+" "+status, func(t *testing.T) {
				t.Parallel()
				_, url := program(t, migratePage, language, nil, "/bin/sh", "-c", script)
				name := language + "-" + status
				create(t, r.API, job(name, url, process.JobSpec{"retry": map[string]any{"max_attempts": 1}}))
				run := finalRun(t, r.API, trigger(t, r.API, name))
				if response := run.Attempts[0].Response; run.Status != status ||
					status == "dead" && (run.Reason != "http_5xx" || response != "out of disk\n") {
					t.Errorf("the run is %s (%s), and the response %q", run.Status, run.Reason, response)
				}
			})
		}
	}
}

// The statements of docs/receiving.md let each message in once, and no attempt after a later one.
func TestTheFenceOfTheDocsHolds(t *testing.T) {
	t.Parallel()
	blocks := docs.Code(t, receivingPage, "sql")
	if len(blocks) != 1 {
		t.Fatalf("the page has %d blocks of SQL", len(blocks))
	}
	tables, once, found := strings.Cut(blocks[0], "\n\n")
	once, fenced, also := strings.Cut(once, "\n\n")
	if !found || !also {
		t.Fatal("the block has no tables, message and fence, apart by empty lines")
	}
	conn := connect(t, pgtest.EmptyDSN(t))
	execute(t, conn, "CREATE SCHEMA receiver; SET search_path = receiver; "+tables)
	for _, c := range []struct {
		what, statement, old, by string
		rows                     int64
	}{
		{"a message", once, "", "", 1},
		{"the message again", once, "", "", 0},
		{"another message", once, "01a214ce", "01a214cf", 1},
		{"an attempt", fenced, "", "", 1},
		{"the attempt goes on", fenced, "", "", 1},
		{"a later attempt", fenced, ", 8)", ", 10)", 1},
		{"the earlier attempt goes on", fenced, "", "", 0},
		{"an attempt of another job", fenced, "daily-invoice-gen", "x", 1},
	} {
		tag, err := conn.Exec(t.Context(), strings.ReplaceAll(c.statement, c.old, c.by))
		if err != nil || tag.RowsAffected() != c.rows {
			t.Errorf("%s: %v and %v, want %d rows", c.what, tag, err, c.rows)
		}
	}
}

// The commands that `punctual dev` proposes work as printed.
func TestWhatDevProposesWorks(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "punctual-dev-test-") // not below t.TempDir, which another user may not enter
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dev, err := process.Dev(t.Context(), binary(t), dir)
	must(t, err)
	watch(t, dev.Process)
	const begin, end = "What to look at next", "Runs, as they arrive"
	await(t, "the proposals", func() bool { return strings.Contains(dev.Output(), end) })
	_, said, _ := strings.Cut(dev.Output(), begin)
	said, _, _ = strings.Cut(said, end)
	var commands []string
	for line := range strings.Lines(strings.ReplaceAll(said, "\\\n", "")) {
		if command, is := strings.CutPrefix(line, "    "); is {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if len(commands) != 4 {
		t.Fatalf("%d commands:\n%s", len(commands), said)
	}
	for _, command := range commands[:3] {
		command = strings.Replace(command, "curl -s", "curl -s --fail-with-body", 1)
		t.Log(succeed(t, "/bin/bash", nil, "-euc", command))
	}
	await(t, "the proposed job to run", func() bool {
		return strings.Contains(dev.Output(), "succeeded first ")
	})
	second := "exec " + strings.Replace(commands[3], "127.0.0.1:8081", "127.0.0.1:0", 1) + " --log-format=json"
	launch(t, "/bin/bash", nil, "-euc", second)
	await(t, "two replicas", func() bool {
		return len(do[struct{ Data []any }](t, dev.API, "GET", "/v1/replicas", nil).Data) == 2
	})
}
