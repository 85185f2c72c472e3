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

// shared are the flags that many commands have. They are described once: by the title of their section, and the
// commands that have one have all.
var shared = []struct {
	title string
	flags []string
}{
	{"API flags", []string{"api-url", "api-key-file", "tenant"}},
	{"Database flags", []string{"database-url", "database-password-file"}},
}

func commandReference() string {
	model := new(cli).parser().Model
	var page strings.Builder
	flagTable(&page, model.Flags)
	commands := model.Leaves(true)
	sections := map[string]string{} // by the row of a flag
	for _, s := range shared {
		for _, command := range commands {
			if list := named(ownFlags(model, command), s.flags); len(list) == len(s.flags) {
				fmt.Fprintf(&page, "\n## %s\n", s.title)
				flagTable(&page, list)
				for _, f := range list {
					sections[flagRow(f)] = s.title
				}
				break
			}
		}
	}
	ofServe := map[string]bool{} // by the row of a flag
	for _, command := range commands {
		if command.Name == "serve" {
			for _, f := range ownFlags(model, command) {
				ofServe[flagRow(f)] = true
			}
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", command.FullPath(), command.Help)
		for _, argument := range command.Positional {
			fmt.Fprintf(&page, "\n`%s`: %s\n", argument.Summary(), argument.Help)
		}
		var own []*kong.Flag
		var titles []string
		for _, f := range ownFlags(model, command) {
			switch title := sections[flagRow(f)]; {
			case title != "":
				titles = append(titles, title)
			case command.Name != "serve" && (command.Name != "dev" || !ofServe[flagRow(f)]):
				own = append(own, f)
			}
		}
		for _, title := range slices.Compact(titles) {
			fmt.Fprintf(&page, "\nPlus the [%s](#%s).\n", title, strings.ReplaceAll(strings.ToLower(title), " ", "-"))
		}
		switch command.Name {
		case "serve":
			page.WriteString("\n[Configuration](config.md) has its flags by subject, and `punctual serve --help` describes each in full.\n")
		case "dev":
			page.WriteString("\nPlus the flags of `punctual serve` that `punctual dev --help` lists.\n")
		}
		flagTable(&page, own)
	}
	return page.String()
}

// ownFlags returns the flags of a command, without those of every command.
func ownFlags(model *kong.Application, command *kong.Node) []*kong.Flag {
	return slices.DeleteFunc(slices.Concat(command.AllFlags(true)...), func(f *kong.Flag) bool {
		return slices.Contains(model.Flags, f)
	})
}

func named(flags []*kong.Flag, names []string) []*kong.Flag {
	return slices.DeleteFunc(flags, func(f *kong.Flag) bool { return !slices.Contains(names, f.Name) })
}

func flagTable(page *strings.Builder, flags []*kong.Flag) {
	if len(flags) == 0 {
		return
	}
	page.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
	for _, f := range flags {
		page.WriteString(flagRow(f))
	}
}

// flagRow describes a flag in a line of a table.
func flagRow(f *kong.Flag) string {
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
	return fmt.Sprintf("| %s |\n", strings.ReplaceAll(row, " # ", " | "))
}
