package store_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
)

// reserved lists words that the schema already accepts and no code writes yet, because a migration comes before its
// code.
var reserved = []string{"event", "step", "limit", "upstream_failed"}

func TestTheSchemaTakesEveryWordAndNoOther(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.Connect(t.Context(), pgtest.DSN(t))
	Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	// An attempt that succeeded, or has not ended, has no row: the run's own row stands for it.
	outcomes := slices.DeleteFunc(domain.AttemptOutcomes(), func(o domain.AttemptOutcome) bool {
		return o == domain.AttemptSucceeded || o == domain.AttemptInFlight
	})
	for constraint, want := range map[string][]string{
		"run_status_is_known":      sorted(domain.Statuses()),
		"run_trigger_is_known":     sorted(domain.Triggers()),
		"run_reason_is_known":      sorted(domain.Reasons()),
		"attempt_outcome_is_known": sorted(outcomes),
		"wait_is_known":            sorted(domain.Waits()),
	} {
		rows, _ := conn.Query(t.Context(), `SELECT pg_get_constraintdef(oid)
			FROM pg_constraint
			WHERE conname = $1 AND connamespace = 'punctual'::regnamespace`, constraint) // of a table or of a domain
		definitions, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(definitions) == 0 {
			t.Fatalf("%s: %d constraints, error %v", constraint, len(definitions), err)
		}
		for _, d := range definitions { // one for the table and one for each of its days
			if diff := cmp.Diff(want, wordsOf(d, want)); diff != "" {
				t.Errorf("%s (-listed by the scheduler +taken by the schema):\n%s", constraint, diff)
			}
		}
	}
}

// wordsOf returns the words that a constraint names, without words that are reserved and not in use.
func wordsOf(definition string, used []string) (words []string) {
	for _, match := range regexp.MustCompile(`'([a-z0-9_]+)'`).FindAllStringSubmatch(definition, -1) {
		if slices.Contains(used, match[1]) || !slices.Contains(reserved, match[1]) {
			words = append(words, match[1])
		}
	}
	slices.Sort(words)
	return words
}

func sorted[T ~string](values []T) (words []string) {
	for _, v := range values {
		words = append(words, string(v))
	}
	slices.Sort(words)
	return words
}

// docs/internals says of every table which package writes it, and what keeps it from growing.
func TestEveryTableHasABound(t *testing.T) {
	c := NewFixture(t)
	text, err := os.ReadFile("../docs/internals/retention.md")
	Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Bounds\n")
	section, _, _ = strings.Cut(section, "\n## ")
	text, err = os.ReadFile("../docs/internals/README.md")
	Must(t, err)
	_, picture, _ := strings.Cut(string(text), "```text\n")
	picture, _, _ = strings.Cut(picture, "```")
	inPicture := map[string]bool{}
	for _, word := range regexp.MustCompile(`[a-z_]+`).FindAllString(picture, -1) {
		inPicture[word] = true
	}
	tables := Column[string](c, `SELECT relname
		FROM pg_class
		WHERE relnamespace = 'punctual'::regnamespace AND relkind IN ('r', 'p')
			AND NOT relispartition
			AND relname !~ '^goose'`)
	for _, table := range tables {
		if !strings.Contains(section, "`"+table+"`") {
			t.Errorf("docs/internals/retention.md does not say what bounds %s", table)
		}
		if !inPicture[table] {
			t.Errorf("the picture in docs/internals/README.md lacks %s", table)
		}
	}
	if len(tables) < 20 {
		t.Errorf("there are %d tables", len(tables))
	}
}
