package domain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxKey = 255 // bytes

// KeyFault says why a text is not the key of a dated run, in words that follow it; empty: it may be one. A path cannot
// name . and .. as clients take them for steps of the path.
func KeyFault(key string) string {
	switch {
	case key == "":
		return "is empty"
	case len(key) > maxKey:
		return fmt.Sprintf("has %d bytes; write at most %d", len(key), maxKey)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
		return "has control characters; leave them out"
	case key == "." || key == "..":
		return "is a step of a path; write another one"
	}
	return ""
}
