package command

import (
	"embed"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Each script asks `punctual complete` for what fits, so all shells complete alike, and always as the installed binary.
//
//go:embed completion
var completionScripts embed.FS

// Completion prints a script for a shell.
type Completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints the script.
func (c Completion) Run() error {
	script, err := completionScripts.ReadFile("completion/punctual." + c.Shell)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s", script)
	return err
}

// Complete lists what may stand at the end of a command line. It is asked by the scripts.
type Complete struct {
	Words []string `arg:"" optional:"" help:"The words after punctual. The last one is the one to complete."`
}

// Run prints each candidate with its help, separated by a tab. If there is none, the shell offers files.
func (c Complete) Run() error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, found := range candidates(new(cli).parser().Model.Node, words) {
		if _, err := fmt.Printf("%s\t%s\n", found.word, found.help); err != nil {
			return err
		}
	}
	return nil
}

type candidate struct{ word, help string }

// candidates returns what may stand in place of the last word.
func candidates(node *kong.Node, words []string) (found []candidate) {
	before, last := []string{}, ""
	if n := len(words); n > 0 {
		before, last = words[:n-1], words[n-1]
	}
	var open *kong.Flag // whose value comes next
	for _, word := range before {
		if open != nil {
			open = nil
		} else if child := childOf(node, word); child != nil {
			node = child
		} else if flag := flagOf(node, word); flag != nil && !flag.IsBool() {
			open = flag
		}
	}
	add := func(word, help string) {
		if strings.HasPrefix(word, last) {
			help, _, _ = strings.Cut(help, ". ")
			found = append(found, candidate{word, strings.TrimSuffix(help, ".")})
		}
	}
	switch {
	case open != nil:
		for _, value := range values(open.Value) {
			add(value, "")
		}
	case strings.HasPrefix(last, "-"):
		for _, flag := range flagsOf(node) {
			add("--"+flag.Name, flag.Help)
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
		for _, argument := range node.Positional {
			for _, value := range values(argument) {
				add(value, "")
			}
		}
	}
	return found
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	for _, flag := range flagsOf(node) {
		if word == "--"+flag.Name {
			return flag
		}
	}
	return nil
}

// flagsOf returns the flags that a command takes, its own first.
func flagsOf(node *kong.Node) (flags []*kong.Flag) {
	for ; node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			if !flag.Hidden {
				flags = append(flags, flag)
			}
		}
	}
	return flags
}

// values returns the values that a flag or an argument can have, if there is a list of them.
func values(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}
