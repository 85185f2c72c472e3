package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
)

// maxDepth bounds how deep arrays and objects of a body nest.
const maxDepth = 64

// wellFormed returns the problem of a body that cannot be read at all; nil when it can.
func wellFormed(data []byte) *problem.Problem {
	if len(bytes.TrimSpace(data)) == 0 {
		return problem.New(problem.CodeMalformed, "The body is empty; it must be a JSON object.")
	}
	if at := invalidUTF8(data); at >= 0 {
		return problem.New(problem.CodeMalformed, fmt.Sprintf("The body is not UTF-8 at byte %d.", at))
	}
	if domain.Nesting(data) > maxDepth {
		return problem.New(problem.CodeMalformed, fmt.Sprintf("The body nests deeper than %d levels.", maxDepth))
	}
	if json.Valid(data) {
		return nil
	}
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return problem.New(problem.CodeMalformed, "The body is not JSON.")
	}
	before := data[:min(max(syntax.Offset-1, 0), int64(len(data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return problem.New(problem.CodeMalformed,
		fmt.Sprintf("The body is not JSON at byte %d (line %d, column %d): %v.", len(before), line, column, syntax))
}

func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// kindOf names a kind of value, for people.
func kindOf(kind jsontext.Kind) string {
	switch kind {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}
