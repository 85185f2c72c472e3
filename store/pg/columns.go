package pg

import (
	"fmt"
	"strings"
)

// Columns are the columns of rows that a statement is given as arrays, one a column. They declare once what stands in
// the text of the statement and what it is given.
type Columns[R any] []ColumnOf[R]

// ColumnOf is one column of rows: see Col.
type ColumnOf[R any] struct {
	name, kind string
	values     func(rows []R) any
}

// Col returns a column with its name, the SQL type of its values, and where these are.
func Col[R, T any](name, kind string, of func(R) T) ColumnOf[R] {
	return ColumnOf[R]{name, kind, func(rows []R) any { return Column(rows, of) }}
}

// Unnest is the SQL of the rows, under a name. Their arrays are the first arguments of the statement.
func (c Columns[R]) Unnest(as string) string {
	return "unnest(" + c.Arrays() + ")\n         AS " + as + "(" + c.Names() + ")"
}

// Arrays is the SQL of the arrays, as a function takes them.
func (c Columns[R]) Arrays() string { return strings.Join(c.arrays(), ", ") }

// Names lists the columns, as an INSERT does.
func (c Columns[R]) Names() string {
	names := make([]string, len(c))
	for i, column := range c {
		names[i] = column.name
	}
	return strings.Join(names, ", ")
}

// Each is the SQL of the rows in a select list, which costs less than one in FROM.
func (c Columns[R]) Each() string { return "unnest(" + strings.Join(c.arrays(), "), unnest(") + ")" }

// Arg is the SQL of the nth argument after the arrays, from 1 on.
func (c Columns[R]) Arg(n int) string { return fmt.Sprintf("$%d", len(c)+n) }

func (c Columns[R]) arrays() []string {
	arrays := make([]string, len(c))
	for i, column := range c {
		arrays[i] = fmt.Sprintf("$%d::%s[]", i+1, column.kind)
	}
	return arrays
}

// Args returns the arrays of rows.
func (c Columns[R]) Args(rows []R) []any {
	args := make([]any, len(c))
	for i, column := range c {
		args[i] = column.values(rows)
	}
	return args
}

// Places are the columns of a query's rows, and where each is scanned to. They declare once what stands in the text of
// the statement and what reads it.
type Places[R any] []PlaceOf[R]

// PlaceOf is one column of such rows: SQL, and a pointer into a row.
type PlaceOf[R any] struct {
	SQL string
	To  func(row *R) any
}

// Place returns a column of such rows.
func Place[R any](sql string, of func(*R) any) PlaceOf[R] { return PlaceOf[R]{sql, of} }

// Selected is the SQL of the columns, as a select list has them.
func (p Places[R]) Selected() string {
	return strings.Join(Column(p, func(c PlaceOf[R]) string { return c.SQL }), ",\n       ")
}

// Of returns where the columns of a row are scanned to.
func (p Places[R]) Of(row *R) []any {
	places := make([]any, len(p))
	for i, c := range p {
		places[i] = c.To(row)
	}
	return places
}
