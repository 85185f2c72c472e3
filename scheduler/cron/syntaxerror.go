package cron

import (
	"fmt"
	"strconv"
)

// SyntaxError says what is wrong with one part of an expression and what would be right. [Parse] returns one, or
// several joined with [errors.Join] when several fields are wrong.
type SyntaxError struct {
	Field  string // "second", "minute", "hour", "day of month", "month", "day of week" or "expression"
	Value  string // the offending text, shortened to 40 bytes and printable ASCII
	Reason string // "70 is outside 0-59"
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s: \"%s\": %s", e.Field, e.Value, e.Reason)
}

func syntaxError(field, value, format string, args ...any) *SyntaxError {
	return &SyntaxError{Field: field, Value: printable(value), Reason: fmt.Sprintf(format, args...)}
}

// printable makes text of unknown origin safe and short enough for a message, a log line and a terminal.
func printable(s string) string {
	const most = 40
	cut := ""
	if len(s) > most {
		s, cut = s[:most], "..."
	}
	quoted := strconv.QuoteToASCII(s)
	return quoted[1:len(quoted)-1] + cut
}
