package pg

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Conditions collects the conditions on a list's rows.
type Conditions struct {
	texts []string
	Args  []any // of the statement, in their order
}

// Add adds a condition in which question marks stand for the arguments.
func (c *Conditions) Add(text string, args ...any) {
	for _, arg := range args {
		c.Args = append(c.Args, arg)
		text = strings.Replace(text, "?", fmt.Sprintf("$%d", len(c.Args)), 1)
	}
	c.texts = append(c.texts, text)
}

// AddIf adds a condition if it is asked for.
func (c *Conditions) AddIf(asked bool, text string, args ...any) {
	if asked {
		c.Add(text, args...)
	}
}

// Page makes the list continue from the page's cursor.
func (c *Conditions) Page(p Page, list byte, below string) error {
	id, ok, err := p.After(list)
	if ok {
		c.Add(below, id)
	}
	return err
}

// Where returns the conditions as a clause.
func (c *Conditions) Where() string {
	if len(c.texts) == 0 {
		return ` WHERE true`
	}
	return ` WHERE ` + strings.Join(c.texts, ` AND `)
}

// Candidates replaces the conditions by the ids of the page's rows, limit at most. The search in labels needs it,
// because row-level security keeps such conditions from their index. The ids are found by all, which reads without
// row-level security, and the rows are then read as the tenant: rows of other tenants are not shown, whatever was
// found. some is false if no row was found. Then the rows need not be read, and runs must not be: without an id, a
// statement names all their days.
func (c *Conditions) Candidates(
	ctx context.Context, all Querier, owner string, tenant int32, id, tables string, limit int,
) (some bool, err error) {
	ids, err := All(ctx, all, pgx.RowTo[uuid.UUID],
		`SELECT `+id+` FROM `+tables+c.Where()+fmt.Sprintf(` ORDER BY %s DESC LIMIT %d`, id, limit), c.Args...)
	if err != nil {
		return false, err
	}
	*c = Conditions{}
	c.Add(owner+` = ?`, tenant)
	c.Add(id+` = ANY(?::uuid[])`, ids)
	return len(ids) > 0, nil
}
