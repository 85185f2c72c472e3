package command

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reference/cli.md anew")

//go:generate go test . -run Reference -args -update

// docs/reference/cli.md says what the help of each command says.
func TestTheReferenceOfTheCommandLineIsCurrent(t *testing.T) {
	t.Parallel()
	const file, begin = root + "/docs/reference/cli.md", "## Flags of every command\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, was, _ := strings.Cut(string(page), begin)
	is := commandReference()
	if *update {
		if err := os.WriteFile(file, []byte(head+begin+is), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("%s differs; go test ./internal/command -run Reference -args -update writes it anew: %s", file, diff)
	}
}

func commandReference() string {
	model := new(cli).parser().Model
	var page strings.Builder
	flagTable(&page, model.Flags)
	for _, command := range model.Leaves(true) {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", command.FullPath(), command.Help)
		for _, argument := range command.Positional {
			fmt.Fprintf(&page, "\n`%s`: %s\n", argument.Summary(), argument.Help)
		}
		own := slices.DeleteFunc(slices.Concat(command.AllFlags(true)...), func(f *kong.Flag) bool {
			return slices.Contains(model.Flags, f)
		})
		flagTable(&page, own)
	}
	return page.String()
}

func flagTable(page *strings.Builder, flags []*kong.Flag) {
	if len(flags) == 0 {
		return
	}
	page.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
	for _, f := range flags {
		shown, byDefault := "--"+f.Name, ""
		if f.HasDefault {
			byDefault = "`" + f.Default + "`"
		} else if !f.IsBool() {
			shown += "=" + strings.TrimSuffix(f.FormatPlaceHolder(), ",...")
		}
		meaning, said, _ := strings.Cut(f.Help, " Default: ")
		if said != "" {
			var more string
			byDefault, more, _ = strings.Cut(strings.TrimSuffix(said, "."), ". ")
			meaning = strings.TrimSuffix(meaning+" "+more, " ")
			if more != "" {
				meaning += "."
			}
		}
		if f.Required {
			byDefault = "required"
		}
		row := fmt.Sprintf("`%s` # %s # %s", shown, byDefault, meaning)
		row = strings.ReplaceAll(row, "|", `\|`)
		fmt.Fprintf(page, "| %s |\n", strings.ReplaceAll(row, " # ", " | "))
	}
}
