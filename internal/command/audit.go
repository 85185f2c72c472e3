package command

import (
	"context"

	"punctual/httpapi/client"
	"punctual/store/audit"
)

// Audit reads the audit log by the API.
type Audit struct {
	newest
	Key    string `placeholder:"PREFIX" help:"Only changes made with this API key, also a revoked one: its prefix, as keys list shows it."`
	Actor  string `placeholder:"NAME" help:"Only changes by this actor: id or name of a key, subject of a token, or login."`
	Action string `placeholder:"ACTION" help:"Only this action, such as job.pause."`
	Job    string `placeholder:"NAME" help:"Only changes of this job, its runs and its dead letters."`
}

// Run lists changes.
func (c *Audit) Run(ctx context.Context, api *client.Client) error {
	query := c.query()
	ask(query, map[string]string{"key": c.Key, "actor": c.Actor, "action": c.Action, "job": c.Job})
	list, err := client.AuditLog.Do(ctx, api, query)
	return printFirst(c.newest, "newest", list, err, "WHEN\tACTION\tNAME\tBY\tFIELDS", func(e audit.Entry) []any {
		by := audit.Actor{Kind: e.ActorKind, Name: orEmpty(e.Actor), KeyName: orEmpty(e.ActorName)}
		return []any{instant(&e.At), e.Action, orEmpty(e.Name), by.Words(), fields(e.Before, e.After)}
	})
}
