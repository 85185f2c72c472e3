package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Manual prints the manual page, which packages install. It says what --help says.
type Manual struct{}

// Run prints the page in the language of man(7).
func (Manual) Run() error {
	_, err := fmt.Print(manualPage(new(cli).parser().Model))
	return err
}

const manualEnd = `.SH FILES
.TP
.I /etc/punctual/punctual.env
The settings of the systemd service: a line NAME=value for each environment variable.
.TP
.I /etc/punctual/master.key
The master key of the systemd service.
.SH EXIT STATUS
0 when the command succeeded, 1 when it failed, and 2 when the command line is wrong.
`

func manualPage(model *kong.Application) string {
	var page strings.Builder
	page.WriteString(".TH PUNCTUAL 1\n.SH NAME\npunctual \\- cron as a service on Postgres\n" +
		".SH SYNOPSIS\n.B punctual\n.I COMMAND\n.RI [ FLAGS ]\n.SH DESCRIPTION\n")
	for i, paragraph := range strings.Split(model.Help, "\n\n") {
		if i > 0 {
			page.WriteString(".PP\n")
		}
		if strings.HasPrefix(paragraph, "    ") {
			fmt.Fprintf(&page, ".EX\n%s\n.EE\n", roff(paragraph))
		} else {
			fmt.Fprintf(&page, "%s\n", roff(paragraph))
		}
	}
	page.WriteString(".SH FLAGS OF EVERY COMMAND\n")
	manualFlags(&page, model.Flags)
	page.WriteString(".SH COMMANDS\n")
	for _, command := range model.Leaves(true) {
		fmt.Fprintf(&page, ".SS %s\n%s\n", roff(command.FullPath()), roff(command.Help))
		for _, argument := range command.Positional {
			fmt.Fprintf(&page, ".TP\n.I %s\n%s\n", roff(argument.Summary()), roff(argument.Help))
		}
		own := slices.Concat(command.AllFlags(true)...)
		manualFlags(&page, slices.DeleteFunc(own, func(f *kong.Flag) bool { return slices.Contains(model.Flags, f) }))
	}
	page.WriteString(manualEnd)
	return page.String()
}

func manualFlags(page *strings.Builder, flags []*kong.Flag) {
	for _, f := range flags {
		shown := "--" + f.Name
		if !f.IsBool() {
			shown += "=" + strings.TrimSuffix(f.FormatPlaceHolder(), ",...")
		}
		fmt.Fprintf(page, ".TP\n.B %s\n%s\n", roff(shown), roff(f.Help))
	}
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`)

// roff escapes a text: no line of it is a request.
func roff(text string) string {
	lines := strings.Split(roffEscapes.Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
