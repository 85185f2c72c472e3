package httpapi

import (
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/store/audit"
	"punctual/store/pg"
)

// answer is an answer that is nothing but a body.
type answer[T any] struct{ Body T }

// show returns the answer that shows a value, unless getting the value failed.
func show[T any](value T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{value}, nil
}

// List is one page of items.
type List[T any] struct {
	Data       []T     `json:"data" doc:"The items of this page."`
	NextCursor *string `json:"next_cursor" doc:"The cursor of the next page; null on the last one."`
}

// pageOf returns a page of items, unless reading them failed. next is the cursor of the next page; empty: there is
// none.
func pageOf[T any](items []T, next string, err error) (*answer[List[T]], error) {
	return show(List[T]{Data: items, NextCursor: pg.OrNull(next)}, err)
}

// listOf returns a page of records, each as form shows it.
func listOf[R, T any](records []R, next string, form func(R) T) (*answer[List[T]], error) {
	items := make([]T, len(records))
	for i, r := range records {
		items[i] = form(r)
	}
	return pageOf(items, next, nil)
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
