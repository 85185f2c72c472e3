package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"
)

// maxDepth bounds how deep arrays and objects of a body nest.
const maxDepth = 64

// wellFormed returns the problem of a body that cannot be read at all; nil when it can.
func wellFormed(data []byte) *Problem {
	if len(bytes.TrimSpace(data)) == 0 {
		return newProblem(CodeMalformed, "The body is empty; it must be a JSON object.")
	}
	if at := invalidUTF8(data); at >= 0 {
		return newProblem(CodeMalformed, fmt.Sprintf("The body is not UTF-8 at byte %d.", at))
	}
	if depth(data) > maxDepth {
		return newProblem(CodeMalformed, fmt.Sprintf("The body nests deeper than %d levels.", maxDepth))
	}
	if json.Valid(data) {
		return nil
	}
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return newProblem(CodeMalformed, "The body is not JSON.")
	}
	before := data[:min(max(syntax.Offset-1, 0), int64(len(data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return newProblem(CodeMalformed,
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

func depth(data []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i += len(quoted(data[i:])) - 1
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

// quoted returns the string literal at the start of b, quotes included.
func quoted(b []byte) []byte {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return b[:i+1]
		}
	}
	return b
}

// members yields the names and values of a well-formed object, in order.
func members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		rest := next(object[1:])
		for rest[0] != '}' {
			name := quoted(rest)
			rest = next(rest[len(name):])
			value := cut(rest)
			if !yield(unquote(name), value) {
				return
			}
			rest = next(rest[len(value):])
		}
	}
}

// elements yields the values of a well-formed array.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rest := next(array[1:])
		for rest[0] != ']' {
			value := cut(rest)
			if !yield(value) {
				return
			}
			rest = next(rest[len(value):])
		}
	}
}

// next skips to the next token. In well-formed JSON, white space, colons and commas can be skipped.
func next(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n:,") }

// cut returns the value at the start of b.
func cut(b []byte) []byte {
	switch b[0] {
	case '"':
		return quoted(b)
	case '{', '[':
		level := 0
		for i := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				i += len(quoted(b[i:])) - 1
			case '{', '[':
				level++
			case '}', ']':
				if level--; level == 0 {
					return b[:i+1]
				}
			}
		}
		return b
	}
	if end := bytes.IndexAny(b, " \t\r\n,]}"); end >= 0 {
		return b[:end]
	}
	return b
}

// unquote returns the text of a string literal. A lone surrogate becomes U+FFFD.
func unquote(literal []byte) string {
	if bytes.IndexByte(literal, '\\') < 0 {
		return string(literal[1 : len(literal)-1])
	}
	var text string
	_ = json.Unmarshal(literal, &text) // well-formed
	return text
}

// kindOf names the kind of a value, for people.
func kindOf(value []byte) string {
	switch value[0] {
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

// storable reports whether the database can store every string of a value: none holds NUL or half of a surrogate
// pair.
func storable(value []byte) bool {
	for rest := value; ; {
		at := bytes.IndexByte(rest, '\\')
		if at < 0 {
			return true
		}
		rest = rest[at:]
		if rest[1] != 'u' {
			rest = rest[2:]
			continue
		}
		unit := hex4(rest[2:])
		rest = rest[6:]
		switch {
		case unit == 0, unit >= 0xdc00 && unit < 0xe000:
			return false
		case unit >= 0xd800 && unit < 0xdc00:
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
				return false
			}
			if low := hex4(rest[2:]); low < 0xdc00 || low >= 0xe000 {
				return false
			}
			rest = rest[6:]
		}
	}
}

func hex4(b []byte) int {
	n := 0
	for _, c := range b[:4] {
		switch {
		case c >= 'a':
			n = n<<4 | int(c-'a'+10)
		case c >= 'A':
			n = n<<4 | int(c-'A'+10)
		default:
			n = n<<4 | int(c-'0')
		}
	}
	return n
}
