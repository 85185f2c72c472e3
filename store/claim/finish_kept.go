package claim

import (
	"encoding/json"
	"maps"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/seal"
)

// keepResponses writes, beside the runs, the kept parts of responses that did not end their attempt as a failure: a
// success has no row in attempts. Most runs keep nothing, and then the statement is not even sent. It is fenced: an
// attempt that was superseded finds no run. The first result stays: a target may report its end before its answer
// arrives, or repeat its report.
var keepResponses = `
INSERT INTO punctual.run_data AS d (
    run_id, result, result_note, response, response_headers, response_truncated, response_fence)
SELECT u.id, u.result::json, u.note, u.response, u.headers::jsonb, nullif(u.truncated, false),
       CASE WHEN u.kept THEN u.fence END
FROM ` + keptParts.Unnest("u") + `
JOIN punctual.runs r ON r.id = u.id AND r.fence = u.fence
WHERE r.id = ANY($1::uuid[]) AND r.status IN ('running', 'succeeded', 'cancelled')
ON CONFLICT (run_id) DO UPDATE SET
    result = CASE WHEN d.result IS NULL AND d.result_note IS NULL THEN excluded.result ELSE d.result END,
    result_note = CASE WHEN d.result IS NULL AND d.result_note IS NULL THEN excluded.result_note ELSE d.result_note END,
    response = CASE WHEN excluded.response_fence IS NULL THEN d.response ELSE excluded.response END,
    response_headers = CASE WHEN excluded.response_fence IS NULL THEN d.response_headers
                            ELSE excluded.response_headers END,
    response_truncated = CASE WHEN excluded.response_fence IS NULL THEN d.response_truncated
                              ELSE excluded.response_truncated END,
    response_fence = coalesce(excluded.response_fence, d.response_fence)`

// keptParts are the rows of keepResponses. They begin as successes do: with the run and its fencing token.
var keptParts = append(successes[:2:2],
	pg.Col("result", "text", func(o *domain.Outcome) seal.JSON { return seal.JSON(o.Result) }),
	pg.Col("note", "text", func(o *domain.Outcome) *string { return pg.OrNull(pg.Storable(o.ResultNote)) }),
	pg.Col("response", "text", func(o *domain.Outcome) *seal.Text {
		return pg.OrNull(seal.Text(pg.Storable(o.Response)))
	}),
	pg.Col("headers", "text", func(o *domain.Outcome) seal.JSON { return headersJSON(o.Headers) }),
	pg.Col("truncated", "bool", func(o *domain.Outcome) bool { return o.Truncated }),
	pg.Col("kept", "bool", func(o *domain.Outcome) bool { return o.Headers != nil }))

// keeps reports whether an outcome has something of its response to keep.
func keeps(o *domain.Outcome) bool { return o.Headers != nil || o.Result != nil || o.ResultNote != "" }

// queueKept queues keepResponses for the responses of successes and of accepted work, each kind sorted by id.
func queueKept(b *pgx.Batch, kinds ...[]*domain.Outcome) {
	for _, outcomes := range kinds {
		var kept []*domain.Outcome
		for _, o := range outcomes {
			if keeps(o) {
				kept = append(kept, o)
			}
		}
		if len(kept) > 0 {
			b.Queue(keepResponses, keptParts.Args(kept)...)
		}
	}
}

// headersJSON writes kept headers for the database. It returns nil for no headers.
func headersJSON(headers map[string]string) seal.JSON {
	if headers == nil {
		return nil
	}
	fit := maps.Clone(headers)
	for name, value := range fit {
		fit[name] = pg.Storable(value)
	}
	text, err := json.Marshal(fit)
	if err != nil {
		return nil // cannot happen: they are strings
	}
	return text
}

// KeptResponse is the part, kept beside its run, of the answer with which a target accepted work.
type KeptResponse struct {
	Response  string
	Headers   seal.JSON
	Truncated bool
}

// KeptColumns are SQL for what KeptResponse.Into scans: of the present attempt of a run r, whose row in run_data is d.
const KeptColumns = `coalesce(CASE WHEN d.response_fence = r.fence THEN d.response END, ''),
       CASE WHEN d.response_fence = r.fence THEN d.response_headers END,
       coalesce(d.response_fence = r.fence AND d.response_truncated, false)`

// Into returns where to scan the part and the headers of the present attempt's answer, and whether it is truncated.
func (k *KeptResponse) Into() []any {
	return []any{(*seal.Text)(&k.Response), &k.Headers, &k.Truncated}
}

// Of adds the kept answer to the outcome of an attempt that its target had accepted. The answer moves to the attempt
// because the next attempt's answer takes its place beside the run.
func (k KeptResponse) Of(o domain.Outcome) domain.Outcome {
	o.Response, o.Headers, o.Truncated = k.Response, HeadersOf(k.Headers), k.Truncated
	return o
}

// HeadersOf reads kept headers. It returns nil for no headers.
func HeadersOf(text []byte) map[string]string {
	if text == nil {
		return nil
	}
	headers := map[string]string{}
	if json.Unmarshal(text, &headers) != nil {
		return nil // another program wrote it
	}
	return headers
}
