package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatMayStandAtTheEndOfACommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"":                        {"serve", "jobs", "verify", "completion"},
		"jo":                      {"jobs"},
		"jobs a":                  {"apply", "approve"},
		"--log-format ":           {"text", "json"},
		"--log-format json mig":   {"migrate"},
		"migrate --database-u":    {"--database-url"},
		"migrate --log-f":         {"--log-format"}, // of every command
		"keys create --role edi":  {"editor"},
		"keys create --name ":     nil, // any text
		"completion ":             {"bash", "zsh", "fish"},
		"jobs apply ":             nil, // files
		"no such command and --h": {"--help"},
	} {
		var got []string
		for _, c := range candidates(new(cli).parser().Model.Node, strings.Split(line, " ")) {
			got = append(got, c.word)
		}
		if line == "" { // all commands: some are enough
			got = slices.DeleteFunc(got, func(word string) bool { return !slices.Contains(want, word) })
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", line, diff)
		}
	}
}

// Each shell itself completes a command line by its script.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(binary(t))
	for shell, script := range map[string]string{
		"bash": `source <(punctual completion bash)
			COMP_WORDS=(punctual jobs a) COMP_CWORD=2
			_punctual punctual; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `compdef() { :; }; source <(punctual completion zsh)
			_describe() { print -l ${(P)2%%:*}; }
			words=(punctual jobs a) CURRENT=3; _punctual`,
		"fish": `punctual completion fish | source; complete --do-complete 'punctual jobs a' | cut -f1`,
	} {
		file := filepath.Join(t.TempDir(), "script")
		must(t, os.WriteFile(file, []byte(script), 0o600))
		run := exec.CommandContext(t.Context(), shell, file)
		run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
		if out, err := run.CombinedOutput(); err != nil || string(out) != "apply\napprove\n" {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
}

// The manual page has all commands, and man(1) has no complaint about it.
func TestTheManualPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "punctual.1")
	page := manualPage(new(cli).parser().Model)
	must(t, os.WriteFile(file, []byte(page), 0o600))
	man := exec.CommandContext(t.Context(), "man", "--warnings", "--local-file", file)
	man.Env = append(os.Environ(), "MANWIDTH=200", "LC_ALL=C.UTF-8")
	var complaints strings.Builder
	man.Stderr = &complaints
	out, err := man.Output()
	if err != nil || complaints.String() != "" {
		t.Errorf("%v: %s", err, complaints.String())
	}
	for _, command := range new(cli).parser().Model.Leaves(true) {
		if !strings.Contains(string(out), "\n   "+command.FullPath()+"\n") {
			t.Errorf("it has no %s", command.FullPath())
		}
	}
}

func TestReplicasDoNotRunOnWindows(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]bool{"serve": false, "dev": false, "jobs list": true, "migrate": true} {
		if got := runsOn("windows", command) == nil; got != want {
			t.Errorf("%s runs: %v", command, got)
		}
		if runsOn("linux", command) != nil {
			t.Errorf("%s does not run on Linux", command)
		}
	}
}
