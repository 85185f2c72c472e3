package httpapi

import (
	"net/http"
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

// written is the answer of a PUT.
type written[T any] struct {
	Status int
	Body   T
}

// wrote returns the answer that shows what a PUT has created or replaced, unless it failed.
func wrote[T any](value T, created bool, err error) (*written[T], error) {
	if err != nil {
		return nil, err
	}
	if created {
		return &written[T]{http.StatusCreated, value}, nil
	}
	return &written[T]{http.StatusOK, value}, nil
}

// List is one page of items.
type List[T any] struct {
	Data       []T     `json:"data" doc:"The items of this page."`
	NextCursor *string `json:"next_cursor" doc:"The cursor of the next page; null on the last one."`
}

// Paging is the input of every list.
type Paging struct {
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"The most items on a page."`
	Cursor string `query:"cursor" maxLength:"256" doc:"The next_cursor of the previous page. It stays valid while items are added."`
}

func (p Paging) page() pg.Page { return pg.Page{Limit: p.Limit, Cursor: p.Cursor} }

// pageOf returns a page of items, unless reading them failed. next is the cursor of the next page; empty: there is
// none.
func pageOf[T any](items []T, next string, err error) (*answer[List[T]], error) {
	return show(List[T]{Data: items, NextCursor: pg.OrNull(next)}, err)
}

// listOf is pageOf for records, each of them as form shows it.
func listOf[R, T any](records []R, next string, err error, form func(R) T) (*answer[List[T]], error) {
	return pageOf(pg.Column(records, form), next, err)
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
