package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// ExitUsage is the exit status for a wrong command line. Nothing was done.
const ExitUsage = 2

// Usage describes in one line what is wrong with a command line, and which command shows the right usage. It does not
// print the help: that would bury the error, and would confuse programs that read the output.
func Usage(err error) string {
	text, command := OneLine(err), "punctual"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		node := parse.Context.Selected()
		if node == nil {
			node = parse.Context.Model.Node
		}
		command = node.FullPath()
		if names := subcommands(node); len(names) > 0 {
			if strings.HasPrefix(text, "expected one of") { // kong names only the first few
				text = "no command is given"
			}
			text += "; the commands are " + strings.Join(names, ", ")
		}
	}
	return fmt.Sprintf("punctual: %s; see %s --help", text, command)
}

func subcommands(node *kong.Node) (names []string) {
	for _, child := range node.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	return names
}

// within returns an error for the value of a flag that does not fit its range.
func within(fits bool, flag string, value any, span string, bounds ...any) error {
	if fits {
		return nil
	}
	return fmt.Errorf("%s: %v is outside "+span, append([]any{flag, value}, bounds...)...)
}

// OneLine returns the text of an error without line breaks.
func OneLine(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// Message returns the text of an error: in one line, unless it is the API's, which has a line for each field at fault.
func Message(err error) string {
	if _, ok := errors.AsType[*apiError](err); ok {
		return err.Error()
	}
	return OneLine(err)
}
