package httpapi

import (
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/store/audit"
	"punctual/store/pg"
)

// List is one page of items.
type List[T any] struct {
	Data       []T     `json:"data" doc:"The items of this page."`
	NextCursor *string `json:"next_cursor" doc:"The cursor of the next page; null on the last one."`
}

type listAnswer[T any] struct{ Body List[T] }

// pageOf returns a page of items. next is the cursor of the next page; empty: there is none.
func pageOf[T any](items []T, next string) *listAnswer[T] {
	return &listAnswer[T]{List[T]{Data: items, NextCursor: pg.OrNull(next)}}
}

// listOf returns a page of records, each as show shows it.
func listOf[R, T any](records []R, next string, show func(R) T) *listAnswer[T] {
	items := make([]T, len(records))
	for i, r := range records {
		items[i] = show(r)
	}
	return pageOf(items, next)
}

// schemaName returns the name of a type in the API's description. A list is named after its items: JobList for
// List[ListedJob].
func schemaName(t reflect.Type, hint string) string {
	switch t {
	case reflect.TypeFor[audit.Entry]():
		return "AuditEntry"
	case reflect.TypeFor[List[audit.Entry]]():
		return "AuditList"
	}
	name := huma.DefaultSchemaNamer(t, hint)
	if !strings.HasPrefix(t.Name(), "List[") {
		return name
	}
	return strings.TrimPrefix(strings.TrimPrefix(name, "List"), "Listed") + "List"
}
