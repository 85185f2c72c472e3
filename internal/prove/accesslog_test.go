//prove:other

package prove

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

// madeAttempt is an attempt on record.
type madeAttempt struct {
	nth
	status         int // of the answer; 0: none
	outcome, error string
}

func (m madeAttempt) String() string {
	return fmt.Sprintf("%s (%s, status %d, %s)", m.nth, m.outcome, m.status, m.error)
}

// attemptsAt returns the attempts of all jobs whose names begin with a word and a hyphen.
func attemptsAt(t *testing.T, conn *pgx.Conn, word string) []madeAttempt {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		SELECT id, attempt, coalesce(http_status, 0), 'succeeded', ''
		FROM punctual.run_history
		WHERE job LIKE $1 || '-%' AND status = 'succeeded'
		UNION ALL
		SELECT r.id, a.number, coalesce(a.http_status, 0), a.outcome, coalesce(a.error, '')
		FROM punctual.run_history r JOIN punctual.attempts a ON a.run_id = r.id
		WHERE r.job LIKE $1 || '-%'`, word)
	must(t, err)
	made, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m madeAttempt, err error) {
		return m, row.Scan(&m.run, &m.attempt, &m.status, &m.outcome, &m.error)
	})
	must(t, err)
	return made
}

// disagreements returns where a server's log and the attempts on record disagree. The server was always stopped such
// that it answered and logged whatever it had read. So each attempt with an answer is in its log once, with the same
// status, and no other attempt is there with an answer. There may be lines of requests that it could not read to their
// ends.
func disagreements(made []madeAttempt, log []answer) (found []string) {
	statuses := map[nth][]int{}
	for _, a := range log {
		statuses[a.nth] = append(statuses[a.nth], a.status)
	}
	for _, m := range made {
		logged := statuses[m.nth]
		delete(statuses, m.nth)
		switch {
		case len(logged) > 1:
			found = append(found, fmt.Sprintf("%s was seen more than once, with %v", m, logged))
		case m.status != 0 && !slices.Equal(logged, []int{m.status}):
			found = append(found, fmt.Sprintf("%s is in the log with %v", m, logged))
		case m.status == 0 && slices.ContainsFunc(logged, isAnswer):
			found = append(found, fmt.Sprintf("%s is in the log with %v", m, logged))
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(statuses), nth.compare) {
		found = append(found, fmt.Sprintf("%s was seen, with %v, and is not on record", n, statuses[n]))
	}
	return found
}

// isAnswer tells the statuses with which webServers answer from those for requests that were cut off, such as 499.
func isAnswer(status int) bool { return status/100 == 2 || status/100 == 5 }

// forwarded returns what a proxy has made of the attempts in its log: those that it did not answer itself were answered
// by the server behind it.
func forwarded(proxy []answer) (made []madeAttempt) {
	for _, a := range proxy {
		m := madeAttempt{nth: a.nth, outcome: fmt.Sprint("answered ", a.status)}
		if a.status/100 == 2 || a.status == http.StatusInternalServerError {
			m.status = a.status
		}
		made = append(made, m)
	}
	return made
}

// Each disagreement between an access log and the attempts on record is noticed.
func TestADisagreementWithAnAccessLogIsNoticed(t *testing.T) {
	t.Parallel()
	first, second := nth{attempt: 1}, nth{attempt: 2}
	for what, c := range map[string]struct {
		made []madeAttempt
		log  []answer
		want int
	}{
		"both agree":                      {[]madeAttempt{{nth: first, status: 200}}, []answer{{nth: first, status: 200}}, 0},
		"an attempt failed and is unseen": {[]madeAttempt{{nth: first}}, nil, 0},
		"an attempt was cut off":          {[]madeAttempt{{nth: first}}, []answer{{nth: first, status: 499}}, 0},
		"an answer was not heard":         {[]madeAttempt{{nth: first}}, []answer{{nth: first, status: 200}}, 1},
		"an answer came from nowhere":     {[]madeAttempt{{nth: first, status: 500}}, nil, 1},
		"an answer was heard as another":  {[]madeAttempt{{nth: first, status: 200}}, []answer{{nth: first, status: 500}}, 1},
		"an attempt is not on record":     {[]madeAttempt{{nth: first}}, []answer{{nth: second, status: 499}}, 1},
		"an attempt was seen a second time": {
			[]madeAttempt{{nth: first, status: 200}}, []answer{{nth: first, status: 200}, {nth: first, status: 200}}, 1,
		},
	} {
		if found := disagreements(c.made, c.log); len(found) != c.want {
			t.Errorf("%s: %v", what, found)
		}
	}
}
