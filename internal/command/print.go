package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"punctual/httpapi"
)

// done tells what was done, unless it failed. It is no result, so it goes to stderr.
func done(err error, said string, args ...any) error {
	if err == nil {
		_, err = fmt.Fprintf(os.Stderr, said+"\n", args...)
	}
	return err
}

// result prints the result of a command, unless it failed.
func result(v any, err error) error {
	if err == nil {
		_, err = fmt.Println(v)
	}
	return err
}

func printAsJSON(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return printJSON(raw)
}

// printJSON prints JSON for people.
func printJSON(raw []byte) error {
	var out bytes.Buffer
	err := json.Indent(&out, raw, "", "  ")
	return result(out.String(), err)
}

// printTable prints items in columns.
func printTable[T any](items []T, header string, row func(T) []any) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, item := range items {
		columns := row(item)
		fmt.Fprintf(w, strings.TrimSuffix(strings.Repeat("%v\t", len(columns)), "\t")+"\n", columns...)
	}
	return w.Flush()
}

// printFirst lists items as JSON, or in columns, unless reading them failed. Then it says if there are more. which says
// which they are.
func printFirst[T any](
	c newest, which string, list httpapi.List[T], err error, header string, row func(T) []any,
) error {
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printAsJSON(list)
	}
	if err := printTable(list.Data, header, row); err != nil || list.NextCursor == nil {
		return err
	}
	return done(nil, "These are the %s %d. There are more: raise --limit.", which, len(list.Data))
}

func instant(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

func orEmpty[T ~string](text *T) T {
	if text == nil {
		return ""
	}
	return *text
}

// orDash returns a value, or a dash if there is none.
func orDash[T any](value *T) any {
	if value == nil {
		return "-"
	}
	return *value
}
