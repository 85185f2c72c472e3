package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
)

// maxDepth bounds how deep arrays and objects of a body nest, which holds data of jobspec.MaxNesting levels.
const maxDepth = jobspec.MaxNesting + 16

// unreadable returns the problem of a text that must not be walked over; nil: the walk finds whether it is JSON.
func unreadable(data []byte) *problem.Problem {
	if len(bytes.TrimSpace(data)) == 0 {
		return problem.New(problem.CodeMalformed, "The body is empty; it must be a JSON object.")
	}
	if !utf8.Valid(data) {
		at := 0
		for r, size := utf8.DecodeRune(data); r != utf8.RuneError || size != 1; r, size = utf8.DecodeRune(data[at:]) {
			at += size
		}
		return problem.New(problem.CodeMalformed, fmt.Sprintf("The body is not UTF-8 at byte %d.", at))
	}
	if jobspec.Nesting(data) > maxDepth {
		return problem.New(problem.CodeMalformed, fmt.Sprintf("The body nests deeper than %d levels.", maxDepth))
	}
	return nil
}

// notJSON is the problem of a text that is not JSON. encoding/json finds the place.
func notJSON(data []byte) *problem.Problem {
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	syntax, is := errors.AsType[*json.SyntaxError](err)
	if !is {
		return problem.New(problem.CodeMalformed, "The body is not JSON.")
	}
	before := data[:min(max(syntax.Offset-1, 0), int64(len(data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return problem.New(problem.CodeMalformed,
		fmt.Sprintf("The body is not JSON at byte %d (line %d, column %d): %v.", len(before), line, column, syntax))
}
