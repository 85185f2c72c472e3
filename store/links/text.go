package links

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"

	"github.com/google/uuid"

	"punctual/store/pg"
)

var idForm = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// NameIn puts the present names of jobs in the place of their ids in texts: definitions, entries of the audit log that
// have one, and lists of links. All of them keep ids, because names change.
func NameIn(ctx context.Context, q pg.Querier, texts ...*json.RawMessage) error {
	lists := make([][]byte, len(texts))
	var ids []uuid.UUID
	for i, text := range texts {
		lists[i] = listIn(*text)
		for _, form := range idForm.FindAll(lists[i], -1) {
			id, _ := pg.ParseID(string(form))
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	names, err := shown(ctx, q, ids)
	if err != nil {
		return err
	}
	for i, text := range texts {
		named := idForm.ReplaceAllFunc(lists[i], func(form []byte) []byte {
			id, _ := pg.ParseID(string(form))
			if name, is := names[id]; is {
				return []byte(name)
			}
			return form
		})
		if len(named) > 0 {
			*text = bytes.Replace(*text, lists[i], named, 1)
		}
	}
	return nil
}

// listIn returns the links in a text, as they stand there.
func listIn(text []byte) []byte {
	if bytes.HasPrefix(text, []byte("[")) {
		return text
	}
	var of struct{ Then, Definition json.RawMessage }
	_ = json.Unmarshal(text, &of) // what has other fields has no links
	if of.Then == nil && of.Definition != nil {
		return listIn(of.Definition)
	}
	return of.Then
}

// shown returns what is shown of jobs: their names, or of a job whose name another has by now, the id. A deleted job is
// not among them.
func shown(ctx context.Context, q pg.Querier, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	names, err := pg.Map[uuid.UUID, string](ctx, q, `
		SELECT id, CASE WHEN named THEN name ELSE id::text END FROM punctual.jobs
		WHERE id = ANY($1::uuid[]) AND state <> 'deleted'`, ids)
	return names, pg.Wrap("reading the names of chained jobs", err)
}
