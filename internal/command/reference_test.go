package command

import (
	"flag"
	"fmt"
	"os"
	"regexp"
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
// commands that have all of them.
var shared = []struct {
	title, slug string
	flags       []string
}{
	{"API flags", "", []string{"api-url", "api-key-file", "tenant"}},
	{"Database flags", "", []string{"database-url", "database-password-file"}},
	{"List flags", "list-flags", []string{"limit", "json"}}, // each command names them
}

func commandReference() string {
	model := new(cli).parser().Model
	var page strings.Builder
	flagTable(&page, model.Flags)
	commands := model.Leaves(true)
	rows := map[string][]string{} // by the path of a command
	told := map[string]string{}   // the commands that have a list of flags, by the rows of these
	var ofServe []string
	for _, command := range commands {
		for _, f := range ownFlags(model, command) {
			rows[command.FullPath()] = append(rows[command.FullPath()], flagRow(f))
		}
		if command.Name == "serve" {
			ofServe = slices.Clone(rows[command.FullPath()])
		}
	}
	plus := map[string]string{} // by the path of a command
	for _, s := range shared {
		lists := map[string][]*kong.Node{} // the commands that have these flags, by the rows of these
		section := ""
		for _, command := range commands {
			list := named(ownFlags(model, command), s.flags)
			if len(list) < len(s.flags) {
				continue
			}
			var key string
			for _, f := range list {
				key += flagRow(f)
			}
			if lists[key] = append(lists[key], command); len(lists[key]) > len(lists[section]) {
				section = key
			}
		}
		for _, command := range lists[section] {
			path := command.FullPath()
			rows[path] = slices.DeleteFunc(rows[path], func(row string) bool { return strings.Contains(section, row) })
			if s.slug != "" {
				plus[path] = fmt.Sprintf("\nPlus the [%s](#%s).\n", strings.ToLower(s.title), s.slug)
			}
		}
		fmt.Fprintf(&page, "\n## %s\n", s.title)
		if s.slug == "" {
			fmt.Fprintf(&page, "\nOf the commands %s.\n", grouped(lists[section], commands))
		}
		rowTable(&page, slices.Collect(strings.Lines(section)))
	}
	for _, command := range commands {
		path := command.FullPath()
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", path, command.Help)
		for _, argument := range command.Positional {
			fmt.Fprintf(&page, "\n`%s`: %s\n", argument.Summary(), argument.Help)
		}
		page.WriteString(plus[path])
		own, same := []string{}, []string{}
		for _, row := range rows[path] {
			if slices.Contains(ofServe, row) {
				same = append(same, flagCell.FindString(row)+"`")
			} else {
				own = append(own, row)
			}
		}
		switch key := strings.Join(own, ""); {
		case command.Name == "serve":
			page.WriteString("\n[Configuration](config.md) has its flags by subject, and `punctual serve --help` describes each in full.\n")
			continue
		case command.Name == "dev":
			page.WriteString("\nPlus the flags of `punctual serve` that `punctual dev --help` lists.\n")
		case len(same) > 0:
			fmt.Fprintf(&page, "\nPlus, as for [serve](config.md): %s.\n", strings.Join(same, ", "))
		case len(own) > 3 && told[key] != "":
			fmt.Fprintf(&page, "\nIts flags are those of [%s](#%s).\n", told[key], strings.ReplaceAll(told[key], " ", "-"))
			continue
		default:
			told[key] = path
		}
		rowTable(&page, own)
	}
	return page.String()
}

var flagCell = regexp.MustCompile("`--[a-z-]+")

// grouped names commands: a group by its name if all its commands are among them.
func grouped(some, all []*kong.Node) string {
	top := func(command *kong.Node) string { return strings.Fields(command.FullPath())[1] }
	var names []string
	for _, command := range some {
		name := top(command)
		if slices.ContainsFunc(all, func(c *kong.Node) bool { return top(c) == name && !slices.Contains(some, c) }) {
			name = strings.TrimPrefix(command.FullPath(), "punctual ")
		}
		if name = "`" + name + "`"; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
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
	rows := make([]string, 0, len(flags))
	for _, f := range flags {
		rows = append(rows, flagRow(f))
	}
	rowTable(page, rows)
}

// rowTable lists flags. One or two are lines, as arguments are, and more are a table.
func rowTable(page *strings.Builder, rows []string) {
	if len(rows) > 2 {
		page.WriteString("\n| flag | default | meaning |\n|---|---|---|\n" + strings.Join(rows, ""))
		return
	}
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| \n"), " | ")
		fmt.Fprintf(page, "\n%s: %s", strings.ReplaceAll(cells[0], `\|`, "|"), strings.ReplaceAll(cells[2], `\|`, "|"))
		switch byDefault := strings.TrimSpace(cells[1]); byDefault {
		case "":
		case "required":
			page.WriteString(" Required.")
		default:
			page.WriteString(" Default: " + byDefault + ".")
		}
		page.WriteByte('\n')
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
