package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// None as a command ends the archiving of days.
const None = "none"

const (
	// patience is how long the command may take nothing from its input, or go on after the end of its input.
	patience = 10 * time.Minute
	// closing is how long it may keep its output open after it has ended.
	closing = 5 * time.Second
	// mostSaid bounds what is kept of the command's output: the end has the reason.
	mostSaid    = 1000
	mostCommand = 4096
)

// CheckCommand returns an error if a command cannot archive days. It is run by sh, or without a shell if it is a JSON
// array of a program and its arguments. In it, %d stands for the day, such as 2026-09-01, and %% for %. For a further
// part of a day, %d is 2026-09-01.2.
func CheckCommand(command string) error {
	if command == "" || command == None {
		return nil
	}
	if len(command) > mostCommand || strings.ContainsRune(command, 0) {
		return fmt.Errorf("must have at most %d bytes, and no byte that is zero", mostCommand)
	}
	words, days, err := parse(command, "")
	if err == nil && days == 0 {
		err = errors.New("must contain %d, the day: else each day overwrites the one before")
	}
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(words[0]); err != nil && words[0] == shell {
		return errors.New("needs a shell, and there is no sh in PATH, as in the published image: use an image that has " +
			`one, or a JSON array of a program and its arguments, such as ["/upload", "%d"]`)
	} else if err != nil {
		return fmt.Errorf("cannot be run: %w", err)
	}
	return nil
}

const shell = "sh"

// parse returns the program that a command runs on a day, and its arguments. days is how often the day is in them.
func parse(command, day string) (words []string, days int, err error) {
	words = []string{shell, "-c", command}
	if strings.HasPrefix(strings.TrimSpace(command), "[") {
		if json.Unmarshal([]byte(command), &words) != nil || len(words) == 0 || words[0] == "" {
			return nil, 0, errors.New(`begins with [, so it must be a JSON array of a program and its arguments, such as ` +
				`["/upload", "%d"]; a shell command may begin with test in place of [`)
		}
	}
	for i := range words {
		var n int
		if words[i], n, err = expand(words[i], day); err != nil {
			return nil, 0, err
		}
		days += n
	}
	return words, days, nil
}

// expand fills in the day. days is how often it stands in the word.
func expand(word, day string) (text string, days int, err error) {
	var b strings.Builder
	for rest := word; ; {
		before, after, found := strings.Cut(rest, "%")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), days, nil
		case strings.HasPrefix(after, "d"):
			b.WriteString(day)
			days++
		case strings.HasPrefix(after, "%"):
			b.WriteByte('%')
		default:
			return "", 0, errors.New("has a % that is neither %d, the day, nor %%, which stands for %")
		}
		rest = after[1:]
	}
}

var (
	errHangs     = errors.New("the command has taken nothing for too long, and was killed")
	errLeftEarly = errors.New("the command exited with 0 before it had read its input to the end")
)

// pipe runs a command, which reads what write writes. If write fails or ctx ends, the command is killed, as it would
// take the end of its input for the end of the day. The command is given no setting of Punctual's, as those have
// secrets.
func (a *Archives) pipe(ctx context.Context, command []string, write func(io.Writer) error) error {
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	hangs := time.AfterFunc(a.patience, func() { kill(errHangs) })
	defer hangs.Stop()
	var said tail
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = environment(), &said, &said, closing
	killTogether(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := write(&patient{in, func() { hangs.Reset(a.patience) }})
	if failed != nil && !errors.Is(failed, syscall.EPIPE) {
		kill(failed)
	}
	err = errors.Join(in.Close(), cmd.Wait())
	switch exited, is := errors.AsType[*exec.ExitError](err); {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case is:
		return fmt.Errorf("the command failed: %w%s", exited, &said)
	case err == nil && failed != nil:
		return errLeftEarly
	}
	return err
}

// withheld are the beginnings of variables that the command does not get: Punctual's own settings, and those of the
// libraries that it stands on. Both have secrets, such as PGPASSWORD and the headers for a collector of traces.
var withheld = []string{"PUNCTUAL_", "DATABASE_URL=", "PG", "OTEL_"}

// environment is what the command gets: everything but what is withheld.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return slices.ContainsFunc(withheld, func(beginning string) bool { return strings.HasPrefix(variable, beginning) })
	})
}

// patient is the command's input. Each write that it takes shows that it works.
type patient struct {
	io.Writer
	taken func()
}

func (p *patient) Write(data []byte) (int, error) {
	n, err := p.Writer.Write(data)
	p.taken()
	return n, err
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(data []byte) (int, error) {
	t.text = append(t.text, data...)
	t.text = t.text[max(0, len(t.text)-mostSaid):]
	return len(data), nil
}

func (t *tail) String() string {
	if said := strings.TrimSpace(strings.ToValidUTF8(string(t.text), "?")); said != "" {
		return ": " + said
	}
	return ""
}
